"""A bound on thoughts ends them by the dialect's own text, whoever shares the batch and whoever guesses: WEFT GOLDEN TEMPLATES.

Each row has weights that mean nothing, a published template, and what opens a thought in its dialect, which is put
behind the template's generation prompt ("": that ends with it).  No mark and no blank may be sampled, so the model ends no
thought by itself: without a bound it thinks to the end, and with one only the bound ends it.
"""
import os
import sys
import tempfile
import threading
import unittest

import test_dialects
from serverkit import Server

WEFT, GOLDEN, TEMPLATES = sys.argv[1:4]
CHAT = "/v1/chat/completions"
TOKENS = 48
BUDGETS = (0, 1, 7, 25)

# weights, template (None: the family's of test_dialects), opening, the tokens that end the thought, further marks
PLAIN = ["\n", "</think>"]
THINK = ["<think>", "</think>"]
ROWS = {
    "Harmony": ("gpt_oss", None, "<|channel|>analysis<|message|>",
                ["<|end|>", "<|start|>", *"assistant", "<|channel|>", *"final", "<|message|>"], []),
    "Gemma 4": ("gemma4_31b", None, "<|channel>thought\n", ["<channel|>"], []),
    "Ministral 3": ("ministral3", None, "[THINK]", ["[/THINK]"], []),
    "GLM 4.6": ("glm4_moe", None, "<think>\n", PLAIN, []),
    "GLM 4.7": ("glm4_moe_lite", None, "", PLAIN, []),
    "GLM 5.2": ("glm4_moe", "GLM-5.2", "", PLAIN, []),
    "DeepSeek V3.1": ("deepseek_v3", "deepseek-ai-DeepSeek-V3.1", "", ["</think>"], []),
    "DeepSeek V3.2": ("deepseek_v3", None, "", PLAIN, []),
    "DeepSeek V4": ("deepseek_v3", "deepseek-ai-DeepSeek-V4", "", PLAIN, []),
    "Nemotron 3": ("nemotron_h", None, "", PLAIN, []),
    "Kimi K2 Thinking": ("kimi_linear", "Kimi-K2-Thinking", "<think>", ["</think>"], THINK),
    "MiniMax M2": ("minimax_m2", None, "", PLAIN, []),
    "Qwen3": ("qwen3", None, "<think>\n", PLAIN, []),
    "Qwen3.5": ("qwen3_5", None, "", PLAIN, []),
    "R1 Distill": ("qwen2", "deepseek-ai-DeepSeek-R1-Distill-Qwen-32B", "", ["</think>"], THINK),
    "QwQ": ("qwen2", "Qwen-QwQ-32B", "", PLAIN, THINK),
    "SmolLM3": ("qwen2", "HuggingFaceTB-SmolLM3-3B", "<think>\n", PLAIN, THINK),
    "MiMo-VL": ("qwen2", "MiMo-VL", "<think>\n", PLAIN, THINK),
    "Step 3.5": ("qwen2", "stepfun-ai-Step-3.5-Flash", "", PLAIN, THINK),
    "LFM2.5": ("lfm2", None, "<think>\n", PLAIN, []),
    "Seed-OSS": ("qwen2", "ByteDance-Seed-OSS", "<seed:think>", ["</seed:think>"], ["<seed:think>", "</seed:think>"]),
    "Apertus": ("qwen2", "Apertus-8B-Instruct", "<|inner_prefix|>", ["<|inner_suffix|>"], ["<|inner_prefix|>", "<|inner_suffix|>"]),
    "Cohere": ("qwen2", "CohereForAI-c4ai-command-r7b-12-2024-tool_use", "<|START_THINKING|>", ["<|END_THINKING|>"],
               ["<|START_THINKING|>", "<|END_THINKING|>"]),
}


def tokens_of(choice):
    return [t["token"] for t in choice["logprobs"]["content"]]


class Budgets(unittest.TestCase):
    def ask(self, server, budget, **more):
        body = {"messages": [test_dialects.QUESTION], "temperature": 0, "max_tokens": TOKENS, "logprobs": True, "ignore_eos": True,
                "logit_bias": self.banned, "chat_template_kwargs": {"enable_thinking": True, "thinking": True}, **more}
        if budget is not None:
            body["thinking_budget"] = budget
        r = server.post(CHAT, body)
        self.assertEqual(r.status, 200, r.text())
        r = r.json()
        return r["choices"][0], r["usage"]["completion_tokens_details"]["reasoning_tokens"]

    def bounded(self, server, close):
        free, thought = self.ask(server, None, speculation=False)
        self.assertEqual((thought, free["message"]["content"] or ""), (TOKENS, ""))
        alone = {}
        for budget in BUDGETS:
            one, thought = self.ask(server, budget, speculation=False)
            said, end = tokens_of(one), budget + len(close)
            self.assertEqual(said[:budget], tokens_of(free)[:budget])
            self.assertEqual(said[budget:end], close, (budget, said))
            self.assertEqual(len(said), TOKENS)
            self.assertTrue(budget <= thought <= end, (budget, thought))
            self.assertEqual(bool(one["message"].get("reasoning_content")), budget > 0)
            self.assertTrue(one["message"]["content"])
            alone[budget] = one, thought
        for budget in BUDGETS:
            self.assertEqual(self.ask(server, budget, num_draft_tokens=8), alone[budget], "drafted")
        self.together(server, alone)

    def together(self, server, alone):
        got = {}

        def one(budget, drafted):
            got[budget, drafted] = self.ask(server, budget, **({} if drafted else {"speculation": False}))

        threads = [threading.Thread(target=one, args=(b, d)) for b in BUDGETS for d in (False, True)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        self.assertEqual(got, {(b, d): alone[b] for b in BUDGETS for d in (False, True)}, "together")

    def row(self, name):
        family, template, opening, close, more = ROWS[name]
        with tempfile.TemporaryDirectory() as to:
            marks = test_dialects.folder_of(family, to, template, opening, more)
            self.banned = {str(i): -100 for i in [*b"\t\n\v\f\r ", *range(256, 256 + len(marks))]}
            server = Server([WEFT, "serve", to, "--port", "0", "--port-file", "{port_file}", "--threads", "2",
                             "--ctx-size", "4096", "--parallel", "8"])
            try:
                self.bounded(server, close)
                if name == "Harmony":
                    self.builtin(server)
            finally:
                server.close()

    def builtin(self, server):
        """Nobody here would run the tools that Harmony has of its own: a prompt that shows them is refused by their names."""
        body = {"messages": [test_dialects.QUESTION], "max_tokens": 4, "temperature": 0}
        for tools in (["browser"], ["python"], ["python", "browser"], {"browser": 1}):
            for more in ({}, {"stream": True}):
                r = server.post(CHAT, {**body, **more, "chat_template_kwargs": {"builtin_tools": tools}})
                self.assertEqual(r.status, 400, r.text())
                self.assertEqual((r.error()["code"], r.error()["param"]), ("unsupported_value", "chat_template_kwargs"))
                for name in tools:
                    self.assertIn(name, r.error()["message"])
        for tools in ([], None):
            r = server.post(CHAT, {**body, "chat_template_kwargs": {"builtin_tools": tools}})
            self.assertEqual(r.status, 200, r.text())


def main():
    sys.argv = sys.argv[:1]
    if not (os.path.isdir(GOLDEN) and os.path.isdir(TEMPLATES)):
        print("skipped: %s or %s is not there" % (GOLDEN, TEMPLATES))
        sys.exit(77)
    for name in ROWS:
        setattr(Budgets, "test_" + name.replace(" ", "_"), lambda self, name=name: self.row(name))
    unittest.main(verbosity=1)


if __name__ == "__main__":
    main()
