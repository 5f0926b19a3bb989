"""The endpoints of llama-server and ollama, paths that were meant, and what the Responses API has beside answers.
Run as: test_others.py STUB_SERVER TOKENIZER.JSON"""
import base64
import json
import math
import re
import struct
import sys
import tempfile
import unittest

from serverkit import CHAT, COMPLETIONS, Server, SharedStub, stub, user

RESPONSES, MESSAGES = "/v1/responses", "/v1/messages"


def lines(r):
    return [json.loads(line) for line in r.text().splitlines()]


class Paths(SharedStub):
    def test_meant(self):
        for path in ("/chat/completions", "/v1/chat/completions/", "/v1/v1/chat/completions", "//v1/chat/completions", "/v1//chat/completions",
                     "//v1//v1///chat/completions//"):
            r = self.s.post(path, user("ab", max_tokens=2))
            self.assertEqual((r.status, r.json()["choices"][0]["message"]["content"]), (200, "abab"), path)
        for path in ("/models", "/v1/models/", "/v1/v1/models", "/v1/v1/models/stub", "//v1/models//stub", "//api/tags"):
            self.assertEqual(self.s.ask("GET", path).status, 200, path)
        for path in ("/messages", "/v1/v1/messages", "/v1/v1/messages/count_tokens/"):
            self.assertEqual(self.s.post(path, user("ab", max_tokens=2)).status, 200, path)
        self.assertEqual(self.s.post("/responses", {"input": "ab", "max_output_tokens": 2}).status, 200)
        self.assertEqual(self.s.post("/completions", {"prompt": "ab", "max_tokens": 2}).json()["choices"][0]["text"], "abab")
        # What a proxy may close for others has one spelling.
        for path in ("/v1/cache", "/v1/requests", "/metrics", "/slots", "/lora-adapters"):
            self.assertEqual(self.s.ask("GET", path).status, 200, path)
            for other in ("/v1" + path, "/" + path, path.replace("/", "//"), path + "/", path + "//"):
                self.assertIn(self.s.ask("GET", other).status, (404, 405), other)
        self.assertIn("no node", self.s.ask("GET", "/v1/cache/nodes/0").error()["message"])
        for other in ("/v1/v1/cache/nodes/0", "//v1/cache/nodes/0", "/v1/cache//nodes/0"):
            self.assertIn("there is nothing at", self.s.ask("GET", other).error()["message"])
        for path in ("/v1/cache/drop", "/v1/cache/pin", "/lora-adapters"):
            for other in ("/v1" + path, "/" + path, path + "/"):
                self.assertEqual(self.s.post(other, {}).status, 404, other)
        r = self.s.post("/v2/chat", {})
        self.assertEqual(r.status, 404)
        self.assertIn("/v1/", r.error()["message"])
        # Where nothing is, the reply has the form of the API that the path would be of.
        self.assertIn("there is nothing at", self.s.post("/api/other", {}).json()["error"])
        self.assertEqual(self.s.post("/v1/messages/other", {}).json()["type"], "error")

    def test_rendered(self):
        """vLLM's /render: the tokens that an answer begins with, without the answer."""
        s, body = self.s, user("how warm is it?", max_tokens=2)
        r = s.post(CHAT + "/render", body).json()
        self.assertEqual(r["token_ids"], s.post("/tokenize", {"messages": body["messages"]}).json()["tokens"])
        self.assertEqual(len(r["token_ids"]), s.post(CHAT, body).json()["usage"]["prompt_tokens"])
        self.assertEqual((r["model"], r["request_id"][:9]), ("stub", "chatcmpl-"))
        texts = ["one", "two or three"]
        r = s.post(COMPLETIONS + "/render", {"prompt": texts, "echo": True}).json()
        self.assertEqual([x["token_ids"] for x in r], [s.post("/tokenize", {"prompt": t}).json()["tokens"] for t in texts])
        self.assertEqual(s.post(COMPLETIONS + "/render", {"prompt": [5, 6, 7]}).json()[0]["token_ids"], [5, 6, 7])
        for path, wrong in (CHAT, {"messages": 3}), (CHAT, user("a", temperature="hot")), (COMPLETIONS, {"prompt": {}}):
            self.assertEqual(s.post(path + "/render", wrong).status, 400, wrong)

    def test_load(self):
        self.assertEqual(self.s.ask("GET", "/load").json(), {"server_load": 0})
        for ping in self.s.ask("GET", "/ping"), self.s.post("/ping", {}):
            self.assertEqual((ping.status, ping.json()["status"]), (200, "ok"))

    def test_version(self):
        of = self.s.ask("GET", "/version").json()["version"]
        self.assertRegex(of, r"^\d+\.\d+\.\d+$")
        self.assertEqual(self.s.ask("GET", "/props").json()["build_info"], "weft " + of)
        page = self.s.ask("GET", "/metrics").text()
        self.assertRegex(page, r'(?m)^weft_build_info\{version="%s",commit="unknown",level="\w+"\} 1$' % of)
        for name in "process_cpu_seconds_total", "process_resident_memory_bytes", "process_start_time_seconds":
            value = float(re.search(r"(?m)^%s ([\d.e+]+)$" % name, page).group(1))
            self.assertGreater(value, 0, name)


class Wishes(SharedStub):
    """Fields that have another meaning where their name comes from, in every API of it."""
    def test_fields_of_others(self):
        chat = lambda o: self.s.post("/api/chat", user("ab", stream=False, options=dict({"num_predict": 2}, **o)))
        generate = lambda o: self.s.post("/api/generate", {"prompt": "ab", "stream": False, "options": dict({"num_predict": 2}, **o)})
        openai = lambda o: self.s.post(CHAT, user("ab", **dict({"max_tokens": 2}, **o)))
        native = lambda o: self.s.post("/completion", dict({"prompt": "ab", "n_predict": 2}, **o))
        for ask in (chat, generate, openai, native):
            for good in (-1, 0, 64, None):
                self.assertEqual(ask({"repeat_last_n": good, "repeat_penalty": 1.8}).status, 200, good)
            for bad in (-2, "x", 0.5):
                r = ask({"repeat_last_n": bad})
                self.assertEqual((r.status, "repeat_last_n" in r.text()), (400, True))
        for ask in (chat, generate):
            self.assertEqual(ask({"num_predict": -2}).status, 200)
            self.assertEqual(ask({"num_predict": -3}).status, 400)
        self.assertEqual(native({"n_predict": -2}).status, 200)

    def test_formats_of_ollama(self):
        for path, body in (("/api/chat", user("ab")), ("/api/generate", {"prompt": "ab"})):
            for stream in (False, True):
                body = dict(body, stream=stream, options={"num_predict": 2})
                for good in (None, "", "json", {"type": "object"}):
                    self.assertEqual(self.s.post(path, dict(body, format=good)).status, 200, good)
                for bad in ("xml", "JSON", '{"type":"object"}', [], ["json"], 5, True):
                    r = self.s.post(path, dict(body, format=bad))
                    self.assertEqual((r.status, "format" in r.json()["error"]), (400, True), bad)
                for bad in (5, [], {}):
                    r = self.s.post(path, dict(body, think=bad))
                    self.assertEqual((r.status, "think" in r.json()["error"]), (400, True), bad)

    def test_system_without_content(self):
        """A system message of Anthropic's API without a block says nothing; others want a block."""
        plain = self.s.post("/v1/messages", user("ab", max_tokens=2)).json()
        for stream in (False, True):
            for at in (0, 1):
                body = user("ab", max_tokens=2, stream=stream)
                body["messages"].insert(at, {"role": "system", "content": []})
                r = self.s.post("/v1/messages", body)
                self.assertEqual(r.status, 200, r.text())
                if not stream:
                    self.assertEqual((r.json()["usage"], r.json()["content"]), (plain["usage"], plain["content"]))
        r = self.s.post("/v1/messages", {"messages": [{"role": "user", "content": []}], "max_tokens": 2})
        self.assertEqual((r.status, "messages[0].content is empty" in r.error()["message"]), (400, True))

    def test_marks_in_front_of_texts(self):
        """A byte order mark, as some editors write it, is no part of a grammar."""
        for name in ("grammar", "guided_grammar"):
            for mark, status in (("\ufeff", 200), ("\ufeff\ufeff", 400), (" \ufeff", 400)):
                self.assertEqual(self.s.post(COMPLETIONS, {"prompt": "ab", "max_tokens": 2, name: mark + 'root ::= "ab"'}).status, status)

    def test_dimensions_that_are_not_there(self):
        """Vectors have no more numbers than the model's rows: what was not honoured is told."""
        for path in ("/v1/embeddings", "/api/embed", "/api/embeddings"):
            for n, told in ((1, None), (2, None), (3, "ignored fields: dimensions")):
                r = self.s.post(path, {"input": "ab", "dimensions": n})
                self.assertEqual((r.status, r.headers.get("x-weft-warning")), (200, told), path)

    def test_template_that_counts_too_far(self):
        """What a template cannot compute of a request is the request's fault."""
        with tempfile.NamedTemporaryFile("w", suffix=".jinja") as f:
            f.write("{{ messages|length * 4611686018427387904 }}")
            f.flush()
            s = stub(template=f.name)
            self.addCleanup(s.close)
            self.assertEqual(s.post(CHAT, user("ab", max_tokens=2)).status, 200)
            r = s.post(CHAT, {"messages": [{"role": role, "content": "a"} for role in ("user", "assistant", "user")], "max_tokens": 2})
            self.assertEqual((r.status, r.error()["code"]), (400, "template_error"), r.text())

    def test_members_without_a_value(self):
        """Strict decoders take a block of text without citations, and not one where they are null."""
        for stream in (False, True):
            self.assertNotIn("citations", self.s.post("/v1/messages", user("ab", max_tokens=2, stream=stream)).text())

    def test_embed_cuts(self):
        s = stub(ctx=1000)
        self.addCleanup(s.close)
        long = "ab" * 3000
        r = s.post("/api/embed", {"input": [long, "c"]})
        self.assertEqual((r.status, len(r.json()["embeddings"])), (200, 2), r.text()[:200])
        self.assertNotIn("x-weft-warning", r.headers)
        self.assertEqual(r.json()["embeddings"][1], s.post("/api/embed", {"input": "c"}).json()["embeddings"][0])
        self.assertEqual(s.post("/api/embed", {"input": long, "truncate": False}).status, 400)
        self.assertEqual(s.post("/api/embed", {"input": "c", "truncate": 5}).status, 400)
        self.assertEqual(s.post("/v1/embeddings", {"input": long}).status, 400)


    def test_embed_nothing(self):
        """A request that asks nothing loads the model, as in ollama's chat and generate; OpenAI's API wants a text."""
        for body in ({}, {"input": []}, {"input": ""}, {"input": None}, {"prompt": ""}, {"input": [], "truncate": False, "keep_alive": 0}):
            r = self.s.post("/api/embed", body)
            self.assertEqual((r.status, r.json().get("embeddings")), (200, []), body)
            self.assertEqual(r.json()["model"], "stub")
            r = self.s.post("/api/embeddings", body)
            self.assertEqual((r.status, r.json()), (200, {"embedding": []}), body)
        for path in ("/api/embed", "/api/embeddings"):
            for bad in (5, {}, False, [[]], [None]):
                self.assertEqual(self.s.post(path, {"input": bad}).status, 400, bad)
            self.assertEqual(self.s.post(path, {"input": [], "model": "zork"}).status, 404)
        for body in ({}, {"input": []}, {"input": ""}, {"input": None}):
            self.assertEqual(self.s.post("/v1/embeddings", body).status, 400, body)


class Responses(SharedStub):
    def test_input_tokens(self):
        body = {"input": [{"role": "user", "content": "AB"}, {"role": "developer", "content": "C"}], "instructions": "D"}
        r = self.s.post(RESPONSES + "/input_tokens", body)
        self.assertEqual(r.json(), {"object": "response.input_tokens",
                                    "input_tokens": self.s.post(RESPONSES, dict(body, max_output_tokens=1)).json()["usage"]["input_tokens"]})

    def test_cancel_and_compact(self):
        whole = self.s.post(RESPONSES, {"input": "AB", "max_output_tokens": 2}).json()
        self.assertEqual(self.s.post("%s/%s/cancel" % (RESPONSES, whole["id"]), {}).json(), whole)
        for path in ("/resp_none/cancel", "/cancel", "/resp_none/zork"):
            self.assertEqual(self.s.post(RESPONSES + path, {}).status, 404, path)
        r = self.s.post(RESPONSES + "/compact", {"input": "AB"})
        self.assertEqual((r.status, r.error()["code"]), (404, "unsupported"))


class Llama(SharedStub):
    def test_timings(self):
        """llama-server's members: in whole replies, in a stream's last chunk, and in all of them where that is asked for."""
        want = {"cache_n"} | {"%s_%s" % (a, b) for a in ("prompt", "predicted") for b in ("n", "ms", "per_token_ms", "per_second")}

        def check(t, n, drafts=None):
            self.assertLessEqual(want, set(t))
            self.assertLessEqual(set(t), want | {"draft_n", "draft_n_accepted"})
            self.assertEqual((t["prompt_n"] + t["cache_n"], t["predicted_n"]), n)
            for kind in ("prompt", "predicted"):
                self.assertGreaterEqual(t[kind + "_ms"], 0)
                self.assertAlmostEqual(t[kind + "_per_token_ms"] * t[kind + "_n"], t[kind + "_ms"], delta=0.001 * (1 + t[kind + "_n"]))
            if drafts is not None:
                self.assertEqual((t.get("draft_n", 0), t.get("draft_n_accepted", 0)), drafts)

        for path, body in ((CHAT, user("abc", max_tokens=6)), (COMPLETIONS, {"prompt": "abc", "max_tokens": 6})):
            for n in (1, 2):
                r = self.s.post(path, dict(body, n=n)).json()
                u, d = r["usage"], r["usage"]["completion_tokens_details"]
                tokens = u["prompt_tokens"], u["completion_tokens"]
                guesses = d["accepted_prediction_tokens"] + d["rejected_prediction_tokens"], d["accepted_prediction_tokens"]
                check(r["timings"], tokens, guesses)
                for usage in (False, True):
                    for each in (False, True):
                        more = {"stream": True, "timings_per_token": each, "n": n}
                        if usage:
                            more["stream_options"] = {"include_usage": True}
                        r = self.s.post(path, dict(body, **more))
                        self.assertNotIn("x-weft-warning", r.headers)
                        *parts, last = r.events()
                        check(last["timings"], tokens)
                        self.assertEqual(bool(last.get("usage")), usage)
                        told = [p for p in parts if "timings" in p]
                        self.assertEqual(bool(told), each)
                        if each:
                            self.assertEqual(told, [p for p in parts if p["choices"] and not p["choices"][0]["finish_reason"] and
                                                    "role" not in p["choices"][0].get("delta", {})])
        for path in (RESPONSES, MESSAGES):
            body = user("abc", max_tokens=2) if path == MESSAGES else {"input": "abc", "max_output_tokens": 2}
            r = self.s.post(path, dict(body, timings_per_token=True))
            self.assertIn("timings_per_token", r.headers["x-weft-warning"])
            self.assertNotIn("timings", r.json())

    def test_completion(self):
        body = {"prompt": "abc", "n_predict": 5, "cache_prompt": True, "id_slot": -1, "repeat_penalty": 1.1, "timings_per_token": True}
        r = self.s.post("/completion", body)
        self.assertEqual(r.status, 200, r.text())
        r = r.json()
        self.assertEqual((r["content"], r["stop"], r["stop_type"], r["tokens_predicted"], r["tokens_evaluated"]),
                         (("abc" * 5)[:len(r["content"])], True, "limit", 5, r["tokens_evaluated"]))
        parts = [json.loads(p[6:]) for p in self.s.post("/completion", dict(body, stream=True)).text().split("\n\n")[:-1]]
        self.assertEqual("".join(p["content"] for p in parts), r["content"])
        self.assertEqual([p["stop"] for p in parts], [False] * (len(parts) - 1) + [True])
        self.assertEqual(sum(len(p["tokens"]) for p in parts), 5)
        # n_probs: of each token, with its alternatives; streamed or not.
        self.assertNotIn("completion_probabilities", r)
        whole = self.s.post("/completion", dict(body, n_probs=2)).json()
        probs = whole["completion_probabilities"]
        self.assertEqual([p["id"] for p in probs], whole["tokens"])
        for p in probs:
            self.assertEqual(bytes(p["bytes"]).decode(), p["token"])
            self.assertEqual(len(p["top_logprobs"]), 2)
            for q in [p] + p["top_logprobs"]:
                self.assertLessEqual(q["logprob"], 0)
        parts = [json.loads(p[6:]) for p in self.s.post("/completion", dict(body, n_probs=2, stream=True)).text().split("\n\n")[:-1]]
        self.assertEqual(sum((p.get("completion_probabilities", []) for p in parts), []), probs)
        self.assertEqual(self.s.post("/completion", dict(body, n_probs=99)).status, 400)
        r = self.s.post("/completion", dict(body, stop=["c"])).json()
        self.assertEqual(r["content"].rstrip("c"), r["content"])
        self.assertEqual(self.s.post("/completion", {"prompt": ["ab", "cd"], "n_predict": 2}).json()[1]["content"][:1], "c")

    def test_infill(self):
        """This tokenizer has the tokens or has not: both are told."""
        body = {"input_prefix": "def f(", "input_suffix": "return", "n_predict": 2,
                "input_extra": [{"filename": "a.py", "text": "x"}]}
        r = self.s.post("/infill", body)
        known = self.s.ask("GET", "/props").json()["infill"]
        self.assertEqual(r.status, 200 if known else 400, r.text())
        again = self.s.post(COMPLETIONS, {"prompt": "def f(", "suffix": "return", "max_tokens": 2})
        self.assertEqual(again.status, r.status)
        if not known:
            self.assertIn("fill in the middle", r.error()["message"])
            self.assertEqual(again.error()["param"], "suffix")

    def test_slots_and_props(self):
        slots = self.s.ask("GET", "/slots").json()
        props = self.s.ask("GET", "/props").json()
        self.assertEqual(len(slots), props["total_slots"])
        self.assertEqual(props["default_generation_settings"]["n_ctx"], 100000)
        self.assertEqual(props["modalities"], {"vision": False, "audio": False})
        for name in ("chat_template", "model_path", "bos_token", "eos_token"):
            self.assertIsInstance(props[name], str)

    def test_pieces(self):
        ids = self.s.post("/tokenize", {"content": "ab é"}).json()["tokens"]
        pieces = self.s.post("/tokenize", {"content": "ab é", "with_pieces": True}).json()["tokens"]
        self.assertEqual([p["id"] for p in pieces], ids)
        raw = b"".join(p["piece"].encode() if isinstance(p["piece"], str) else bytes(p["piece"]) for p in pieces)
        self.assertEqual(raw.decode(), "ab é")


class Prompts(SharedStub):
    """The logarithms of prompts: the stub gives every token the same, so it is shapes that are looked at."""

    def test_echo(self):
        plain = self.s.post(COMPLETIONS, {"prompt": "a b c d", "max_tokens": 3, "temperature": 0}).json()
        r = self.s.post(COMPLETIONS, {"prompt": "a b c d", "max_tokens": 3, "echo": True}).json()
        self.assertEqual(r["choices"][0]["text"], "a b c d" + plain["choices"][0]["text"])
        n = plain["usage"]["prompt_tokens"]
        for stream in (False, True):
            body = {"prompt": "a b c d", "max_tokens": 3, "echo": True, "logprobs": 1, "stream": stream,
                    **({"stream_options": {"include_usage": True}} if stream else {})}
            r = self.s.post(COMPLETIONS, body)
            self.assertEqual(r.status, 200, r.text())
            parts = [e["choices"][0] for e in r.events() if e["choices"]] if stream else r.json()["choices"]
            usage = r.events()[-1]["usage"] if stream else r.json()["usage"]
            lp = {k: sum((p["logprobs"][k] for p in parts if p["logprobs"]), []) for k in
                  ("tokens", "token_logprobs", "top_logprobs", "text_offset")}
            self.assertEqual({k: len(v) for k, v in lp.items()}, dict.fromkeys(lp, n + 3))
            self.assertEqual((lp["token_logprobs"][0], lp["top_logprobs"][0], lp["text_offset"][0]), (None, None, 0))
            self.assertTrue(all(v is not None for v in lp["token_logprobs"][1:]))
            self.assertEqual("".join(lp["tokens"]), "".join(p["text"] for p in parts))
            self.assertEqual("".join(lp["tokens"][:n]), "a b c d")
            self.assertEqual((usage["prompt_tokens"], usage["completion_tokens"]), (n, 3))

    def names(self, server, ids, top, **more):
        """tokens and top_logprobs of ids, said again, none of whose objects has a key twice."""
        twice = []

        def once(pairs):
            twice.extend(k for i, (k, _) in enumerate(pairs) if k in [p for p, _ in pairs[:i]])
            return dict(pairs)
        r = server.post(COMPLETIONS, dict({"prompt": ids, "max_tokens": 1, "echo": True, "logprobs": top}, **more))
        self.assertEqual(r.status, 200, r.text())
        parts = [p[6:] for p in r.text().split("\n\n")[:-2]] if more.get("stream") else [r.text()]
        parts = [json.loads(p, object_pairs_hook=once)["choices"][0]["logprobs"] for p in parts]
        self.assertEqual(twice, [])
        return [sum((p[k] for p in parts if p), []) for k in ("tokens", "top_logprobs")]

    def test_names_of_tokens(self):
        """Parts of characters, and tokens of one text, have names of their own; a token's name is that of its alternative."""
        pieces = ["<unk>", "a", "<0x61>", "<0xF0>", "<0x9F>", "<0x0A>", "b", "<0x62>", "c", "d", "e", "f"]
        vocab = {"version": "1.0", "truncation": None, "padding": None, "added_tokens": [], "normalizer": None, "pre_tokenizer": None,
                 "post_processor": None, "decoder": {"type": "Sequence", "decoders": [{"type": "ByteFallback"}, {"type": "Fuse"}]},
                 "model": {"type": "Unigram", "unk_id": 0, "vocab": [[p, -1.0] for p in pieces], "byte_fallback": True}}
        with tempfile.NamedTemporaryFile("w", suffix=".json") as f:
            json.dump(vocab, f)
            f.flush()
            s = Server([sys.argv[1], f.name, "{port_file}"])
            self.addCleanup(s.close)
            for stream in (False, True):
                # The stub's alternatives are the token and the ids that follow it.
                tokens, tops = self.names(s, [1, 2, 3, 4, 5, 6, 7, 1], 5, stream=stream)
                self.assertEqual(tokens, ["a", "a", "bytes:\\xf0", "bytes:\\x9f", "\n", "b", "b", "a", "a"])
                self.assertEqual([list(t) for t in tops[1:4]], [["a", "bytes:\\xf0", "bytes:\\x9f", "\n", "b"],
                                                                ["bytes:\\xf0", "bytes:\\x9f", "\n", "b", "token_id:7"],
                                                                ["bytes:\\x9f", "\n", "b", "token_id:7", "c"]])
                for token, top in zip(tokens[1:], tops[1:]):
                    self.assertEqual(token, next(iter(top)))
                self.assertEqual(self.names(s, [1, 2, 3], 0, stream=stream)[0], ["a", "a", "bytes:\\xf0", "a"])
        for text in ("\U0001f600\U0001f600 \u00e9 \u0416", "ab"):
            for stream in (False, True):
                self.names(self.s, text, 20, stream=stream)

    def test_prompt_logprobs(self):
        r = self.s.post(COMPLETIONS, {"prompt": "a b c d", "max_tokens": 2, "prompt_logprobs": 1}).json()
        c = r["choices"][0]
        self.assertEqual(len(c["prompt_logprobs"]), r["usage"]["prompt_tokens"])
        self.assertIsNone(c["prompt_logprobs"][0])
        self.assertTrue(all(isinstance(v, dict) and v for v in c["prompt_logprobs"][1:]))
        self.assertNotIn("a b c d", c["text"])
        self.assertEqual(self.s.post(COMPLETIONS, {"prompt": "a", "prompt_logprobs": 1, "presence_penalty": 1}).status, 400)

    def test_128(self):
        r = self.s.post(COMPLETIONS, {"prompt": "a", "max_tokens": 1, "n": 128}).json()
        self.assertEqual(len(r["choices"]), 128)


class Embeddings(SharedStub):
    """The stub's row of a prompt is the number of its tokens, and the last of them."""

    def vector(self, text):
        ids = text if isinstance(text, list) else self.s.post("/tokenize", {"prompt": text}).json()["tokens"]
        length = math.hypot(len(ids), ids[-1])
        return [len(ids) / length, ids[-1] / length], len(ids)

    def near(self, got, want):
        self.assertEqual(len(got), len(want))
        for a, b in zip(got, want):
            self.assertAlmostEqual(a, b, delta=1e-6)

    def test_openai(self):
        for given in ("ab", ["ab", "abc d", "é"], [5, 6, 7], [[5, 6], [7]]):
            r = self.s.post("/v1/embeddings", {"model": "stub", "input": given, "user": "u"})
            self.assertEqual(r.status, 200, r.text())
            self.assertNotIn("x-weft-warning", r.headers)
            r = r.json()
            several = isinstance(given, list) and not isinstance(given[0], int)
            texts = given if several else [given]
            self.assertEqual([(d["object"], d["index"]) for d in r["data"]], [("embedding", i) for i in range(len(texts))])
            for d, text in zip(r["data"], texts):
                self.near(d["embedding"], self.vector(text)[0])
            n = sum(self.vector(t)[1] for t in texts)
            self.assertEqual((r["object"], r["model"], r["usage"]), ("list", "stub", {"prompt_tokens": n, "total_tokens": n}))

    def test_forms(self):
        whole = self.s.post("/embeddings", {"input": "abc"}).json()["data"][0]["embedding"]
        text = self.s.post("/v1/embeddings", {"input": "abc", "encoding_format": "base64"}).json()["data"][0]["embedding"]
        self.near(struct.unpack("<2f", base64.b64decode(text, validate=True)), whole)
        self.assertEqual(self.s.post("/v1/embeddings", {"input": "abc", "dimensions": 1}).json()["data"][0]["embedding"], [1])
        self.assertEqual(self.s.post("/v1/embeddings", {"input": "abc", "dimensions": 9}).json()["data"][0]["embedding"], whole)

    def test_ollama(self):
        whole = self.s.post("/v1/embeddings", {"input": ["ab", "c"]}).json()
        want = [d["embedding"] for d in whole["data"]]
        r = self.s.post("/api/embed", {"model": "stub:latest", "input": ["ab", "c"], "keep_alive": "5m", "options": {"num_ctx": 9}}).json()
        self.assertEqual((r["model"], r["embeddings"], r["prompt_eval_count"]), ("stub", want, whole["usage"]["prompt_tokens"]))
        self.assertEqual(self.s.post("/api/embeddings", {"prompt": "ab"}).json(), {"embedding": want[0]})
        # A context that is larger than there is, as in /api/chat; and one that is none.
        for path in "/api/embed", "/api/embeddings":
            r = self.s.post(path, {"input": "ab", "options": {"num_ctx": 200000}})
            self.assertEqual((r.status, r.headers["x-weft-warning"]), (200, "ignored fields: options.num_ctx"))
            self.assertNotIn("x-weft-warning", self.s.post(path, {"input": "ab", "options": {"num_ctx": 9}}).headers)
            r = self.s.post(path, {"input": "ab", "options": {"num_ctx": "9"}})
            self.assertEqual(r.status, 400)
            self.assertIn("options.num_ctx must be a number", r.json()["error"])

    def test_errors(self):
        for body, words in (({}, "input is missing"), ({"input": ""}, "empty"), ({"input": 5}, "input must be"), ({"input": ["a", 5]}, "input[1]"),
                            ({"input": [1, -1]}, "input[1]"), ({"input": "a", "dimensions": 0}, "dimensions"), ({"input": ["a"] * 2049}, "2049"),
                            ({"input": "a", "encoding_format": "int8"}, "encoding_format"), ({"input": "a", "model": "other"}, "other")):
            r = self.s.post("/v1/embeddings", body)
            self.assertEqual(r.status, 404 if "model" in body else 400, body)
            self.assertIn(words, r.error()["message"])
        # Members of generations are none here.
        r = self.s.post("/v1/embeddings", {"input": "a", "stream": True, "n": 3})
        self.assertEqual((r.status, len(r.json()["data"]), r.headers["x-weft-warning"]), (200, 1, "unknown fields: stream, n"))


def google(text, **config):
    return {"contents": [{"role": "user", "parts": [{"text": text}]}], "generationConfig": config}


class Google(SharedStub):
    URL = "/v1beta/models/stub:"
    STREAM = URL + "streamGenerateContent?alt=sse"

    def parts(self, r):
        """The parts of a stream, taken apart by the expression that Google's client for JavaScript has."""
        text, parts = r.text() if not isinstance(r, str) else r, []
        while m := re.match(r"\s*data: (.*)(?:\n\n|\r\r|\r\n\r\n)", text):
            parts.append(json.loads(m[1]))
            text = text[m.end():]
        self.assertEqual(text.strip(), "")
        return parts

    def test_answer(self):
        body = google("ab", maxOutputTokens=4, temperature=0, topK=1, seed=1)
        r = self.s.post(self.URL + "generateContent", body)
        self.assertNotIn("x-weft-warning", r.headers)
        whole = r.json()
        (c,) = whole["candidates"]
        chat = self.s.post(CHAT, user("ab", max_tokens=4, temperature=0, seed=1)).json()
        self.assertEqual(c["content"], {"parts": [{"text": chat["choices"][0]["message"]["content"]}], "role": "model"})
        u = whole["usageMetadata"]
        self.assertEqual((c["finishReason"], u["promptTokenCount"], u["candidatesTokenCount"], u["totalTokenCount"], whole["modelVersion"]),
                         ("MAX_TOKENS", chat["usage"]["prompt_tokens"], 4, chat["usage"]["total_tokens"], "stub"))
        parts = self.parts(self.s.post(self.STREAM, body))
        self.assertEqual("".join(p["candidates"][0]["content"]["parts"][0]["text"] for p in parts), c["content"]["parts"][0]["text"])
        self.assertEqual([p["candidates"][0].get("finishReason") for p in parts], [None] * (len(parts) - 1) + ["MAX_TOKENS"])
        self.assertEqual(parts[-1]["usageMetadata"], u)
        self.assertEqual(self.s.post(self.URL + "countTokens", google("ab")).json(), {"totalTokens": u["promptTokenCount"]})

    def test_thoughts(self):
        for told, want in ((True, [{"text": "hm", "thought": True}, {"text": "yes"}]), (False, [{"text": "yes"}])):
            body = google("hm</think>yes", thinkingConfig={"includeThoughts": told, "thinkingLevel": "HIGH"}, maxOutputTokens=9)
            r = self.s.post(self.URL + "generateContent", body).json()
            self.assertEqual([dict(p, text=p["text"][:3]) for p in r["candidates"][0]["content"]["parts"]], want)
            u = r["usageMetadata"]
            self.assertEqual(u["promptTokenCount"] + u["thoughtsTokenCount"] + u["candidatesTokenCount"], u["totalTokenCount"])
            self.assertGreater(u["thoughtsTokenCount"], 0)

    def test_calls(self):
        s = stub(says="<tool_call>")
        self.addCleanup(s.close)
        said = '<tool_call>\n{"name": "f", "arguments": {"a": 1}}\n</tool_call>'
        schema = {"type": "OBJECT", "properties": {"a": {"type": "INTEGER", "nullable": True, "maxLength": "3"}}, "propertyOrdering": ["a"]}
        body = dict(google(said, maxOutputTokens=40), tools=[{"functionDeclarations": [{"name": "f", "parameters": schema}]}, {"googleSearch": {}}])
        r = s.post(self.STREAM, body)
        self.assertEqual(r.headers["x-weft-warning"], "tools left out: googleSearch")
        calls = [p["functionCall"] for e in self.parts(r) for p in e["candidates"][0]["content"]["parts"] if "functionCall" in p]
        self.assertEqual((calls[0]["name"], calls[0]["args"]), ("f", {"a": 1}))
        self.assertTrue(calls[0]["id"])
        # What comes back, with ids and without; results are a tool's messages between the user's.
        for call, result in ((calls[0], {"id": calls[0]["id"]}), ({"name": "f", "args": {"a": 1}}, {})):
            for response, text in (({"output": "n2"}, "n2"), ({"error": "n2"}, "n2!"), ({"b": 2}, '{"b":2}')):
                contents = [{"parts": [{"text": "n1"}]}, {"role": "model", "parts": [{"functionCall": call, "thoughtSignature": "x"}]},
                            {"role": "user", "parts": [{"functionResponse": dict(result, name="f", response=response)}, {"text": "n3"}]}]
                r = s.post(self.URL + "generateContent", {"contents": contents, "systemInstruction": {"parts": [{"text": "S"}]},
                                                          "generationConfig": {"maxOutputTokens": 30}})
                self.assertEqual(r.status, 200, r.text())
                self.assertTrue(r.json()["candidates"][0]["content"]["parts"][0]["text"].startswith("Sn1" + text + "n3"), r.text())

    def test_quiet(self):
        """What keeps a stream alive leaves it readable to the client, which knows no comments."""
        s = stub(keep_alive_ms=10)
        self.addCleanup(s.close)
        c = s.connect()
        c.request("POST", self.STREAM, google("say prefill"))
        head = c.until(b"\r\n\r\n")
        for _ in range(3):
            head += c.until(b"\n\r\n")
        c.close()
        self.assertNotIn(b":", head.split(b"\r\n\r\n", 1)[1])

    def test_errors(self):
        for method, body, status, words in (
                ("generateContent", {}, 400, "contents must be an array"), ("generateContent", [], 400, "must be an object"),
                ("streamGenerateContent", google("x"), 400, "?alt=sse"), ("embedContent", google("x"), 404, ":countTokens"),
                ("generateContent", google("x", topP=7), 400, "generationConfig.topP"), ("generateContent", google("x", logprobs=2), 400, "logprobs"),
                ("generateContent", {"contents": [{"parts": [{"text": 5}]}]}, 400, "contents[0].parts[0].text"),
                ("generateContent", {"contents": [{"parts": [{"executableCode": {}}]}]}, 400, "contents[0].parts[0]"),
                ("generateContent", {"contents": [{"parts": [{"inlineData": {"mimeType": "application/pdf", "data": ""}}]}]}, 400, "images and sounds"),
                ("generateContent", dict(google("x"), tools=5), 400, "tools"), ("generateContent", google("say fail"), 500, "stub"),
                ("generateContent", dict(google("x"), toolConfig={"functionCallingConfig": {"mode": "SOME"}}), 400, "AUTO, ANY")):
            with self.subTest(method=method, body=body):
                r = self.s.post(self.URL + method, body)
                e = r.json()["error"]
                self.assertEqual((r.status, e["code"]), (status, status), e)
                self.assertIn(words, e["message"])
        self.assertEqual(self.s.post(self.URL + "generateContent", google("x", topP=7)).json()["error"]["status"], "INVALID_ARGUMENT")
        # The path names the model, whatever the body says.
        r = self.s.post("/v1beta/models/other:generateContent", dict(google("x"), model="stub"))
        self.assertEqual((r.status, r.json()["error"]["status"]), (404, "NOT_FOUND"))
        self.assertEqual(self.s.post("/v1beta/other", {}).json()["error"]["status"], "NOT_FOUND")
        self.assertIn("stub", self.parts(self.s.post(self.STREAM, google("say fail")))[-1]["error"]["message"])


class Ollama(SharedStub):
    def test_chat(self):
        body = user("ab", model="stub:latest", keep_alive="5m", options={"num_predict": 4, "num_ctx": 4096, "temperature": 0, "seed": 1})
        r = self.s.post("/api/chat", body)
        self.assertEqual((r.status, r.headers["content-type"]), (200, "application/x-ndjson"), r.text())
        self.assertNotIn("x-weft-warning", r.headers)
        parts = lines(r)
        self.assertEqual([p["done"] for p in parts], [False] * (len(parts) - 1) + [True])
        text = "".join(p["message"]["content"] for p in parts)
        last = parts[-1]
        self.assertEqual((last["done_reason"], last["eval_count"]), ("length", 4))
        self.assertGreater(last["prompt_eval_count"], 0)
        whole = self.s.post("/api/chat", dict(body, stream=False)).json()
        self.assertEqual((whole["message"]["content"], whole["done"]), (text, True))
        r = self.s.post("/api/chat", dict(body, options={"num_predict": 4, "num_ctx": 200000}))
        self.assertEqual(r.headers["x-weft-warning"], "ignored fields: options.num_ctx")

    def test_think(self):
        body = user("hm</think>yes", think=True, stream=False, options={"num_predict": 9})
        m = self.s.post("/api/chat", body).json()["message"]
        self.assertEqual(m["thinking"], "hm")
        self.assertTrue(m["content"].startswith("yes"))

    def test_tools(self):
        s = stub(says="<tool_call>")
        self.addCleanup(s.close)
        said = '<tool_call>\n{"name": "f", "arguments": {"a": 1}}\n</tool_call>'
        tools = [{"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {"a": {"type": "integer"}}}}}]
        body = user(said, tools=tools, options={"num_predict": 40})
        for stream in (True, False):
            calls = [c for p in lines(s.post("/api/chat", dict(body, stream=stream))) for c in p["message"].get("tool_calls", [])]
            self.assertEqual(calls[0]["function"], {"name": "f", "arguments": {"a": 1}})
        back = {"messages": [{"role": "user", "content": "n1"}, {"role": "assistant", "content": "", "tool_calls": [calls[0]]},
                             {"role": "tool", "tool_name": "f", "content": "n2"}], "stream": False, "options": {"num_predict": 4}}
        self.assertEqual(s.post("/api/chat", back).json()["message"]["content"], "n1n2")

    def test_generate(self):
        body = {"model": "stub", "prompt": "ab", "system": "S", "stream": False, "options": {"num_predict": 3}}
        self.assertEqual(self.s.post("/api/generate", body).json()["response"][:3], "Sab")
        raw = {"prompt": "ab", "raw": True, "options": {"num_predict": 2}}
        self.assertEqual("".join(p["response"] for p in lines(self.s.post("/api/generate", raw))), "abab")

    def test_format(self):
        r = self.s.post("/api/chat", user("x", format={"type": "object", "uniqueItems": 5, "not": {"type": "object"}}, stream=False))
        self.assertEqual(r.status, 400)         # it reached the compiler
        self.assertEqual(self.s.post("/api/chat", user("x", format="json", stream=False, options={"num_predict": 2})).status, 200)

    def test_loading(self):
        """A request that asks nothing has a model loaded, or let go."""
        for path, body, member in (("/api/generate", {}, {"response": ""}), ("/api/generate", {"prompt": "", "keep_alive": 0}, {"response": ""}),
                                   ("/api/chat", {"messages": []}, {"message": {"role": "assistant", "content": ""}})):
            r = self.s.post(path, dict(body, model="stub")).json()
            self.assertEqual((r["done"], r["done_reason"]), (True, "load"), r)
            self.assertLess(member.items(), r.items())

    def test_models(self):
        self.assertEqual([m["name"] for m in self.s.ask("GET", "/api/tags").json()["models"]], ["stub"])
        self.assertRegex(self.s.ask("GET", "/api/tags").json()["models"][0]["digest"], "^[0-9a-f]{64}$")    # of which clients show a part
        self.assertEqual(self.s.ask("GET", "/api/ps").json()["models"][0]["model"], "stub")
        self.assertTrue(self.s.ask("GET", "/api/version").json()["version"])
        for body in ({"model": "stub:latest"}, {"name": "stub"}):
            r = self.s.post("/api/show", body).json()
            self.assertEqual(r["capabilities"][:2], ["completion", "tools"])
            self.assertEqual(r["model_info"]["weft.context_length"], 100000)

    def test_errors(self):
        for path, body, status, words in (
                ("/api/chat", user("x", model="llama3"), 404, "llama3"), ("/api/chat", {"messages": 5}, 400, "messages"),
                ("/api/generate", {"model": "llama3"}, 404, "llama3"),
                ("/api/chat", {"messages": [{"role": "user", "content": "x", "images": ["aGk="]}]}, 400, "text only"),
                ("/api/chat", user("x", options=5), 400, "options"), ("/api/pull", {"model": "x"}, 501, "/api/pull"),
                ("/api/push", {"model": "x"}, 501, "/api/push"), ("/api/create", {"model": "x"}, 501, "/api/create"),
                ("/api/copy", {"source": "x"}, 501, "/api/copy"), ("/api/show", {"model": "other"}, 404, "other"), ("/api/chat", user("say fail", stream=False), 500, "stub")):
            with self.subTest(path=path, body=body):
                r = self.s.post(path, body)
                self.assertEqual(r.status, status, r.text())
                self.assertIn(words, r.json()["error"])
        self.assertIn("stub", lines(self.s.post("/api/chat", user("say fail")))[-1]["error"])


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0]] + sys.argv[3:])
