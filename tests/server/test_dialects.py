"""A server on a tiny folder of each family calls functions in the dialect of its family: WEFT GOLDEN TEMPLATES...

GOLDEN has the folders (random weights, no tokenizer), TEMPLATES the chat templates as published.  Beside the weights stand
a tokenizer of bytes whose special tokens are the family's, and its template.  Families whose published template is not
in TEMPLATES have one written here, which frames turns and teaches calls as the published one does.  Weights that mean
nothing call a function since they must (`tool_choice`), so what is seen here is the whole way: template, constraint,
dialect, reply, stream, and the call found again in the history.  Families whose template takes no functions refuse them.
"""
import base64
import json
import os
import struct
import sys
import tempfile
import unittest

from serverkit import Server

WEFT, GOLDEN, TEMPLATES = sys.argv[1:4]



def framed(open_turn, close_turn, calls, roles={}, declare="{{ tools | tojson }}", answer="{{ m.content }}", opening=""):
    """A chat template: turns between open_turn (ROLE stands for its role) and close_turn, the tools in a system turn.

    `calls` is what teaches a call and writes one: Jinja over `name` and `arguments`.
    """
    def turn(role, content):
        return open_turn.replace("ROLE", roles.get(role, role)) + content + close_turn
    text = "{%- if m.content %}{{ m.content }}{% endif %}{% if m.tool_calls %}" + calls + "{% endif %}"
    taught = ("{%- set m = {'tool_calls': [{'function': {'name': 'NAME', 'arguments': {'KEY': 'VALUE'}}}]} %}" + calls)
    return ("{%- if tools %}" + turn("system", "Functions: " + declare + "\nA call is written as\n" + taught) + "{% endif %}"
            "{%- for m in messages %}"
            "{%- if m.role == 'assistant' %}" + turn("assistant", text)
            + "{%- elif m.role == 'tool' %}" + turn("tool", answer)
            + "{%- elif m.role == 'system' %}" + turn("system", "{{ m.content }}")
            + "{%- else %}" + turn("user", "{{ m.content }}") + "{% endif %}"
            "{%- endfor %}"
            "{%- if add_generation_prompt %}" + open_turn.replace("ROLE", roles.get("assistant", "assistant")) + opening + "{% endif %}")


def each_call(one, begin="", end="", between=""):
    return (begin + "{% for c in m.tool_calls %}{% set name = c.function.name %}{% set arguments = c.function.arguments %}" + one
            + ("{% if not loop.last %}" + between + "{% endif %}" if between else "") + "{% endfor %}" + end)


CHATML = ("<|im_start|>ROLE\n", "<|im_end|>\n")
HERMES = each_call("<tool_call>\n{\"name\": \"{{ name }}\", \"arguments\": {{ arguments | tojson }}}\n</tool_call>\n")
WRITTEN = {
    "MiniMax M2": framed("]~b]ROLE\n", "[e~[\n", each_call(
        "<invoke name=\"{{ name }}\">\n{% for k, v in arguments.items() %}<parameter name=\"{{ k }}\">"
        "{{ v if v is string else v | tojson }}</parameter>\n{% endfor %}</invoke>\n", "<minimax:tool_call>\n", "</minimax:tool_call>"),
        {"assistant": "ai"}, answer="<response>{{ m.content }}</response>", opening="<think>\n"),
    "OLMo 3": framed(*CHATML, each_call(
        "{{ name }}({% for k, v in arguments.items() %}{{ k }}={{ v | tojson }}{% if not loop.last %}, {% endif %}{% endfor %})",
        "<function_calls>", "</function_calls>", "\n"),
        {"tool": "environment"}, declare="<functions>{{ tools | tojson }}</functions>"),
    "Falcon-H1": framed(*CHATML, HERMES, declare="<tools>{{ tools | tojson }}</tools>",
                        answer="<tool_response>{{ m.content }}</tool_response>"),
    "Ling": framed("<role>ROLE</role>", "<|role_end|>", HERMES, {
        "system": "SYSTEM", "user": "HUMAN", "assistant": "ASSISTANT", "tool": "OBSERVATION"},
        declare="<tools>{{ tools | tojson }}</tools>", answer="<tool_response>{{ m.content }}</tool_response>"),
    "Jamba": framed("<|bom|><|ROLE|> ", "<|eom|>", each_call(
        "{\"name\": \"{{ name }}\", \"arguments\": {{ arguments | tojson }}}", "<tool_calls>[", "]</tool_calls>", ", "),
        declare="<tool_definitions>{{ tools | tojson }}</tool_definitions>"),
}
GEMMA4 = ["<bos>", "<|tool>", "<tool|>", "<|tool_call>", "<tool_call|>", "<|tool_response>", "<tool_response|>", "<|\"|>", "<|channel>",
          "<channel|>", "<|think|>", "<|turn>", "<turn|>"]
GLM = ["[gMASK]", "<sop>", "<|system|>", "<|assistant|>", "<|observation|>", "<tool_call>", "</tool_call>", "<arg_key>", "</arg_key>",
       "<arg_value>", "</arg_value>", "<think>", "</think>", "<|user|>"]
DEEPSEEK = ["<｜begin▁of▁sentence｜>", "<｜User｜>", "<｜Assistant｜>", "｜DSML｜", "<think>", "</think>", "<｜end▁of▁sentence｜>"]
QWEN = ["<|im_start|>", "<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>", "<think>", "</think>", "<|im_end|>"]
# folder (a word), template, the marks that are tokens of their own (the last ends a turn)
FAMILIES = {
    "minimax_m2": ("MiniMax M2", ["]~b]", "<minimax:tool_call>", "</minimax:tool_call>", "<think>", "</think>", "[e~["]),
    "olmo3": ("OLMo 3", ["<|im_start|>", "<functions>", "</functions>", "<function_calls>", "</function_calls>", "<|im_end|>"]),
    "falcon_h1": ("Falcon-H1", ["<|im_start|>", "<tools>", "</tools>", "<tool_call>", "</tool_call>", "<|im_end|>"]),
    "bailing_moe_linear": ("Ling", ["<role>", "</role>", "<tool_call>", "</tool_call>", "<|role_end|>"]),
    "jamba": ("Jamba", ["<|bom|>", "<|system|>", "<|user|>", "<|assistant|>", "<|tool|>", "<tool_calls>", "</tool_calls>", "<|eom|>"]),
    "gemma4_moe": ("google-gemma-4-31B-it", GEMMA4),
    "qwen2": ("Qwen-Qwen2.5-7B-Instruct", ["<|im_start|>", "<tool_call>", "</tool_call>", "<|im_end|>"]),
    "llama2": ("mistralai-Mistral-Nemo-Instruct-2407", ["<s>", "[INST]", "[/INST]", "[AVAILABLE_TOOLS]", "[/AVAILABLE_TOOLS]", "[TOOL_CALLS]",
               "[TOOL_RESULTS]", "[/TOOL_RESULTS]", "</s>"]),
    "gemma4_31b": ("google-gemma-4-31B-it", GEMMA4),
    "gemma4_unified": ("google-gemma-4-31B-it", ["<|image>", "<|image|>", "<image|>", "<|audio>", "<|audio|>", "<audio|>", *GEMMA4]),
    "gpt_oss": ("openai-gpt-oss-120b", ["<|start|>", "<|message|>", "<|channel|>", "<|constrain|>", "<|end|>", "<|call|>", "<|return|>"]),
    "ministral3": ("mistralai-Ministral-3-14B-Reasoning-2512", ["<s>", "[SYSTEM_PROMPT]", "[/SYSTEM_PROMPT]", "[INST]", "[/INST]",
                   "[AVAILABLE_TOOLS]", "[/AVAILABLE_TOOLS]", "[TOOL_CALLS]", "[ARGS]", "[TOOL_RESULTS]", "[/TOOL_RESULTS]",
                   "[THINK]", "[/THINK]", "</s>"]),
    "nemotron_h": ("NVIDIA-Nemotron-3-Nano-30B-A3B-BF16", ["<|im_start|>", "<tool_call>", "</tool_call>", "<think>", "</think>", "<|im_end|>"]),
    "granitemoehybrid": ("ibm-granite-granite-3.3-2B-Instruct", ["<|start_of_role|>", "<|end_of_role|>", "<|tool_call|>", "<|end_of_text|>"]),
    "lfm2": ("LFM2.5-Instruct", ["<|startoftext|>", "<|im_start|>", "<|tool_list_start|>", "<|tool_list_end|>", "<|tool_call_start|>",
             "<|tool_call_end|>", "<|tool_response_start|>", "<|tool_response_end|>", "<think>", "</think>", "<|im_end|>"]),
    "lfm2_moe": ("LFM2-8B-A1B", ["<|startoftext|>", "<|im_start|>", "<|tool_list_start|>", "<|tool_list_end|>", "<|tool_call_start|>",
                 "<|tool_call_end|>", "<|tool_response_start|>", "<|tool_response_end|>", "<|im_end|>"]),
    "kimi_linear": ("moonshotai-Kimi-K2", ["<|im_system|>", "<|im_user|>", "<|im_assistant|>", "<|im_middle|>",
                    "<|tool_calls_section_begin|>", "<|tool_calls_section_end|>", "<|tool_call_begin|>",
                    "<|tool_call_argument_begin|>", "<|tool_call_end|>", "<|im_end|>"]),
    "glm4_moe": ("GLM-4.6", GLM),
    "glm4_moe_lite": ("GLM-4.7-Flash", GLM),
    "glm5_next": ("GLM-5.2", GLM),
    "deepseek_v3": ("deepseek-ai-DeepSeek-V3.2", DEEPSEEK),
    "deepseek_v4": ("deepseek-ai-DeepSeek-V4", DEEPSEEK),
    "qwen3_5": ("Qwen3.5-4B", QWEN),
    "qwen3_5 as Qwen3.8": ("community-Qwen3.8-27B-froggeric-v22", QWEN),
    "qwen3_moe": ("Qwen3-Coder", ["<|im_start|>", "<tool_call>", "</tool_call>", "<|im_end|>"]),
    "qwen3": ("Qwen-Qwen3-0.6B", QWEN),
    "llama": ("meta-llama-Llama-3.1-8B-Instruct", ["<|begin_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|python_tag|>", "<|eom_id|>", "<|eot_id|>"]),
}
WITHOUT = {     # whose templates take no functions
    "gemma3_text": ("npm-gemma3", ["<bos>", "<start_of_turn>", "<end_of_turn>"]),
    "rwkv7": ("llama-cpp-rwkv-world", ["<think>", "</think>", "<|rwkv_tokenizer_end_of_text|>"]),
}
OTHERWISE = ("granitemoehybrid", "lfm2", "lfm2_moe", "gpt_oss")     # whose template leaves calls out, or writes them in another of its forms
HEARS = ("gemma4_unified",)     # whose question has a sound and a picture, too
TOOLS = [{"type": "function", "function": {
    "name": "get_weather", "description": "The weather of a city",
    "parameters": {"type": "object", "additionalProperties": False, "required": ["city", "days"], "properties": {
        "city": {"type": "string", "enum": ["Lima", "Quito", "La Paz"]}, "days": {"type": "integer", "enum": [1, 2, 7]}}}}},
    {"type": "function", "function": {"name": "now", "description": "The time", "parameters": {"type": "object", "properties": {}}}}]
QUESTION = {"role": "user", "content": "How is the weather?"}


def byte_letters():
    """The letters by which byte-level vocabularies write bytes, of byte 0 to 255."""
    plain = set(range(33, 127)) | set(range(161, 173)) | set(range(174, 256))
    out, more = [], 256
    for b in range(256):
        out.append(chr(b if b in plain else more))
        more += b not in plain
    return out


def tokenizer(marks):
    split = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False, "use_regex": False}
    return {"version": "1.0", "truncation": None, "padding": None, "normalizer": None, "post_processor": None,
            "added_tokens": [{"id": 256 + i, "content": m, "special": True, "single_word": False, "lstrip": False,
                              "rstrip": False, "normalized": False} for i, m in enumerate(marks)],
            "pre_tokenizer": split, "decoder": split,
            "model": {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None,
                      "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False, "merges": [],
                      "vocab": {c: i for i, c in enumerate(byte_letters())}}}


def with_rows(golden, to, marks):
    """The config of the golden folder, with a row in each table of its tokens for every mark: those of the first tokens once more."""
    with open(os.path.join(golden, "config.json")) as f:
        config = json.load(f)
    text = config.get("text_config", config)
    before, after = text["vocab_size"], 256 + len(marks)  # bytes before the marks
    if before >= after:
        return None
    text["vocab_size"] = after
    with open(os.path.join(golden, "model.safetensors"), "rb") as f:
        head, data, out = json.loads(f.read(struct.unpack("<Q", f.read(8))[0])), f.read(), b""
    head.pop("__metadata__", None)
    for name, t in head.items():
        one = data[slice(*t["data_offsets"])]
        if t["shape"][0] == before and any(w in name for w in ("embed", "head.weight", "tid2eid")):
            one += one[:len(one) // before * (after - before)]
            t["shape"][0] = after
        t["data_offsets"] = [len(out), len(out) + len(one)]
        out += one
    said = json.dumps(head).encode()
    with open(os.path.join(to, "model.safetensors"), "wb") as f:
        f.write(struct.pack("<Q", len(said)) + said + out)
    for member, mark in (("boi", "<|image>"), ("image", "<|image|>"), ("eoi", "<image|>"), ("boa", "<|audio>"), ("audio", "<|audio|>")):
        if member + "_token_id" in config and mark in marks:
            config[member + "_token_id"] = 256 + marks.index(mark)
    if "eoa_token_index" in config:
        config["eoa_token_index"] = 256 + marks.index("<audio|>")
    return config


def folder_of(family, to, template=None, opening="", more=()):
    """Writes a folder of that family's weights, and returns the marks that are its tokens behind the 256 bytes.

    template: in the place of the family's own; opening: text that is put behind the generation prompt; more: further marks.
    """
    own, marks = {**FAMILIES, **WITHOUT}[family]
    template, marks = template or own, [*more, *marks]
    folder = os.path.join(os.path.abspath(GOLDEN), family.split()[0])
    golden = [os.path.join(folder, k) for k in ("mlx-q4", "hf-bf16", "mlx-q8") if os.path.exists(os.path.join(folder, k, "config.json"))][0]
    written = {"tokenizer.json": tokenizer(marks), "generation_config.json": {"eos_token_id": 255 + len(marks)},
               "tokenizer_config.json": {"eos_token": marks[-1], "bos_token": marks[0]}}
    if template in WRITTEN:
        written["chat_template.jinja"] = WRITTEN[template]
    else:
        with open(os.path.join(TEMPLATES, template + ".jinja")) as f:
            written["chat_template.jinja"] = f.read()
    if opening:
        written["chat_template.jinja"] += "{%- if add_generation_prompt %}{{ " + json.dumps(opening) + " }}{% endif %}"
    config = with_rows(golden, to, marks)
    if config:
        written["config.json"] = config
    for name in os.listdir(golden):
        if name not in written and not os.path.exists(os.path.join(to, name)):
            os.symlink(os.path.join(golden, name), os.path.join(to, name))
    for name, text in written.items():
        with open(os.path.join(to, name), "w") as f:
            f.write(text if isinstance(text, str) else json.dumps(text))
    return marks


class Dialects(unittest.TestCase):
    def served(self, family, see):
        with tempfile.TemporaryDirectory() as to:
            folder_of(family, to)
            server = Server([WEFT, "serve", to, "--port", "0", "--port-file", "{port_file}", "--threads", "2",
                             "--ctx-size", "2048" if family == "llama2" else "4096"])
            try:
                see(server)
            finally:
                server.close()

    def calls_of(self, family):
        self.served(family, lambda server: self.whole_way(server, family))
        if family in HEARS:
            self.served(family, lambda server: self.whole_way(server, family, self.heard(server, family)))

    def heard(self, server, family):
        """A question with the golden's sound and picture between its words."""
        def data(name):
            with open(os.path.join(GOLDEN, family, "hf-bf16", name), "rb") as f:
                return base64.b64encode(f.read()).decode()
        q = {"role": "user", "content": [
            {"type": "text", "text": "How is the weather"}, {"type": "input_audio", "input_audio": {"data": data("s1.wav"), "format": "wav"}},
            {"type": "image_url", "image_url": {"url": "data:image/png;base64," + data("small.png")}}, {"type": "text", "text": "there?"}]}
        with_rows, without = (self.reply(server, [m], tool_choice="required").json()["usage"]["prompt_tokens"] for m in (q, QUESTION))
        self.assertGreaterEqual(with_rows - without, 9 + 7 * 9 + 4)     # rows, and the marks around them
        return q

    def refusal_of(self, family):
        self.served(family, self.refused)

    def refused(self, server):
        body = {"messages": [QUESTION], "tools": TOOLS, "temperature": 0, "max_tokens": 8}
        for more in ({}, {"tool_choice": "required"}, {"stream": True}):
            r = server.post("/v1/chat/completions", {**body, **more})
            self.assertEqual(r.status, 400, r.text())
            self.assertIn("takes no tools", r.text())
        del body["tools"]
        self.assertEqual(server.post("/v1/chat/completions", body).status, 200)

    def reply(self, server, messages, **more):
        r = server.post("/v1/chat/completions", {"messages": messages, "tools": TOOLS, "temperature": 0, "max_tokens": 1000,
                                                 "reasoning_effort": "none", **more})
        self.assertEqual(r.status, 200, r.text())
        return r

    def fits(self, calls):
        self.assertTrue(calls)
        for name, arguments in calls:
            a = json.loads(arguments)
            if name == "get_weather":
                self.assertIn(a.pop("city"), ["Lima", "Quito", "La Paz"])
                self.assertIn(a.pop("days"), [1, 2, 7])
            else:
                self.assertEqual(name, "now")
            self.assertEqual(a, {})

    def whole_way(self, server, family, question=QUESTION):
        one = {"tool_choice": {"type": "function", "function": {"name": "get_weather"}}, "parallel_tool_calls": False}
        for more in ({"tool_choice": "required", "parallel_tool_calls": False}, one):
            r = self.reply(server, [question], logprobs=True, **more).json()
            said = r["choices"][0]
            calls = [(c["function"]["name"], c["function"]["arguments"]) for c in said["message"]["tool_calls"]]
            self.assertEqual(said["finish_reason"], "tool_calls")
            self.fits(calls)
            if family not in OTHERWISE:
                self.as_template(server, question, said)
            events = self.reply(server, [question], stream=True, **more).events()
            self.assertEqual(streamed(events), calls)
        again = self.reply(server, [question, said["message"], {"role": "tool", "content": "rain", "tool_call_id":
                                    said["message"]["tool_calls"][0]["id"]}], cache_report=True, **more).json()
        self.fits([(c["function"]["name"], c["function"]["arguments"]) for c in again["choices"][0]["message"]["tool_calls"]])
        # Templates may write a past turn otherwise than the model did, so the question at least is found again.
        usage = again["usage"]
        self.assertGreaterEqual(usage["prompt_tokens_details"]["cached_tokens"], r["usage"]["prompt_tokens"] - self.opening(server, question))
        self.assertEqual(usage["cache"]["resumed_at"], usage["prompt_tokens_details"]["cached_tokens"])
        self.messages(server)

    def opening(self, server, question):
        """Tokens by which the template opens an answer."""
        body = {"messages": [question], "tools": TOOLS, "reasoning_effort": "none"}
        whole, shut = (server.post("/apply-template", {**body, "add_generation_prompt": a}).json()["prompt"] for a in (True, False))
        self.assertTrue(whole.startswith(shut))
        return len(server.post("/tokenize", {"content": whole[len(shut):], "add_special": False, "parse_special": True}).json()["tokens"])

    def as_template(self, server, question, said):
        """A call begins as the template writes it in a history, but for blanks and the thoughts before."""
        called, text = said["message"]["tool_calls"], "".join(t["token"] for t in said["logprobs"]["content"])
        shown = server.post("/apply-template", {"messages": [question, {**said["message"], "content": ""}], "tools": TOOLS}).json()["prompt"]
        begun = text[:text.index(called[0]["function"]["name"])].split("</think>")[-1]
        self.assertIn("".join(begun.split()), "".join(shown.split()))

    def messages(self, server):
        tools = [{"name": t["function"]["name"], "input_schema": t["function"]["parameters"]} for t in TOOLS]
        r = server.post("/v1/messages", {"messages": [QUESTION], "tools": tools, "temperature": 0, "max_tokens": 1000,
                                         "thinking": {"type": "disabled"},
                                         "tool_choice": {"type": "any", "disable_parallel_tool_use": True}})
        self.assertEqual(r.status, 200, r.text())
        said = r.json()
        self.assertEqual(said["stop_reason"], "tool_use")
        self.fits([(b["name"], json.dumps(b["input"])) for b in said["content"] if b["type"] == "tool_use"])
        # Agents bound thoughts in every request, also of models whose thoughts no token ends.
        r = server.post("/v1/messages", {"messages": [QUESTION], "tools": tools, "max_tokens": 8, "temperature": 0,
                                         "thinking": {"type": "enabled", "budget_tokens": 1024}})
        self.assertEqual(r.status, 200, r.text())


def streamed(events):
    """The calls that a stream's pieces make."""
    calls = {}
    for e in events:
        for choice in e.get("choices", []):
            for c in choice["delta"].get("tool_calls", []):
                name, arguments = calls.setdefault(c["index"], ["", ""])
                f = c.get("function", {})
                calls[c["index"]] = [name + (f.get("name") or ""), arguments + (f.get("arguments") or "")]
    return [tuple(calls[i]) for i in sorted(calls)]


def main():
    sys.argv = sys.argv[:1]
    if not (os.path.isdir(GOLDEN) and os.path.isdir(TEMPLATES)):
        print("skipped: %s or %s is not there" % (GOLDEN, TEMPLATES))
        sys.exit(77)
    for family in FAMILIES:
        setattr(Dialects, "test_" + family.replace(" ", "_"), lambda self, family=family: self.calls_of(family))
    for family in WITHOUT:
        setattr(Dialects, "test_" + family, lambda self, family=family: self.refusal_of(family))
    unittest.main(verbosity=1)


if __name__ == "__main__":
    main()
