"""What the server tells of its prefix store, and what clients' rewritten turns find there.
Run as: test_cache.py WEFT MODEL"""
import copy
import json
import os
import sys
import tempfile
import unittest

from serverkit import Server

WEFT, MODEL = sys.argv[1:3]
QUICK = os.environ.get("WEFT_TEST_QUICK")
CHAT, COMPLETIONS = "/v1/chat/completions", "/v1/completions"

if not os.path.exists(os.path.join(MODEL, "model.safetensors")):
    print("skipped: %s has no model.safetensors" % MODEL)
    sys.exit(77)

SYSTEM = {"role": "system", "content": "You are a helper who answers every question with as few words as you can."}


def start(*options):
    return Server([WEFT, "serve", MODEL, "--port", "0", "--port-file", "{port_file}"] + list(options))


def ask(text, **more):
    return dict({"messages": [SYSTEM, {"role": "user", "content": text}], "max_tokens": 8, "temperature": 0}, **more)


class Test(unittest.TestCase):
    def serve(self, *options):
        s = start(*options)
        self.addCleanup(s.close)
        return s

    def explain(self, s, body, headers=None):
        r = s.post("/v1/cache/explain", body, headers)
        self.assertEqual(r.status, 200, r.text())
        return r.json()


class Explaining(Test):
    def test_reasons(self):
        s = self.serve()
        a, b = ask("What is the capital of Peru?"), ask("What is the capital of France?")
        e = self.explain(s, a)
        self.assertEqual((e["resumed_at"], e["source"], e["reason"], e["first_diff"]), (0, "none", "empty", None))
        self.assertEqual(e["computed"], e["prompt_tokens"])
        self.assertEqual(self.explain(s, a), e)         # a dry run changes nothing
        whole = s.post(CHAT, a).json()
        self.assertNotIn("cache", whole["usage"])
        # The other question parts from it inside the second message.
        e = self.explain(s, b)
        self.assertEqual((e["source"], e["replayed"] + e["resumed_at"]), ("memory", e["first_diff"]["position"]))
        self.assertEqual((e["first_diff"]["message"], e["first_diff"]["before"]["text"][:2]), (1, " P"))
        self.assertEqual(e["first_diff"]["after"]["text"][:2], " F")
        # What was foretold is what happens, however it is asked for.
        r = s.post(CHAT, dict(b, cache_report=True)).json()
        got = r["usage"]
        self.assertEqual(got["cache"], e)
        self.assertEqual((r["timings"]["cache_n"], r["timings"]["prompt_n"]), (e["resumed_at"], e["prompt_tokens"] - e["resumed_at"]))
        self.assertEqual(got["prompt_tokens_details"]["cached_tokens"], e["resumed_at"])
        again = self.explain(s, b)
        self.assertGreater(again["resumed_at"], e["resumed_at"])
        stream = s.post(CHAT, dict(b, stream=True), {"x-cache-report": "1"}).events()[-1]["usage"]
        self.assertEqual(stream["cache"], again)
        # Another system prompt; another salt.
        e = self.explain(s, {"messages": [{"role": "user", "content": "Hello there, how are you?"}]})
        self.assertEqual((e["resumed_at"], e["first_diff"]["message"]), (0, None))
        e = self.explain(s, dict(b, cache_salt="mine"))
        self.assertEqual((e["resumed_at"], e["reason"]), (0, "empty"))
        m = s.metrics()
        self.assertEqual(m['weft_prefix_lookups_total{reason="empty"}'], 1)
        self.assertEqual(sum(v for k, v in m.items() if k.startswith("weft_prefix_lookups_total")), 3)

    def test_completions(self):
        s = self.serve()
        ids = [100 + i * i % 300 for i in range(200)]
        s.post(COMPLETIONS, {"prompt": ids, "max_tokens": 1})
        e = self.explain(s, {"prompt": ids[:150] + [7] + ids[151:]})
        self.assertEqual((e["first_diff"]["position"], e["first_diff"]["before"]["token"], e["first_diff"]["after"]["token"]),
                         (150, ids[150], 7))
        self.assertEqual(e["first_diff"]["message"], None)

    def placed(self, s, body):
        """The report of body now; the place that it names is the tree's."""
        e = self.explain(s, body)
        at = [n for n in s.ask("GET", "/v1/cache").json()["nodes"] if n["end"] == e["resumed_at"] and n["state"]]
        self.assertIn(e["place"], [n["place"] for n in at] if e["resumed_at"] else [None], e)
        return e

    def test_places(self):
        """The place that was used is named, and what a denser grid would have spared counted."""
        s = self.serve()
        ids = [100 + i * i % 300 for i in range(400)]
        s.post(COMPLETIONS, {"prompt": ids, "max_tokens": 1})
        saves = set()
        for at in range(3, 400, 7):
            e = self.placed(s, {"prompt": ids[:at] + [7] + ids[at + 1:]})
            self.assertEqual(e["resumed_at"] + e["replayed"], at)
            self.assertEqual(e["denser_grid_saves"], sum(16 for to in range(e["resumed_at"] + 16, at + 1, 16)), e)
            saves.add(e["denser_grid_saves"])
        self.assertTrue(0 in saves and len(saves) > 1, saves)
        # What is foretold is reported of the request, which leaves a place where it parts.
        other = {"prompt": ids[:300] + [7] * 20, "max_tokens": 1}
        e = self.explain(s, other)
        self.assertEqual(s.post(COMPLETIONS, dict(other, cache_report=True)).json()["usage"]["cache"], e)
        e = self.placed(s, {"prompt": ids[:300] + [8] * 20})
        self.assertEqual((e["resumed_at"], e["place"], e["denser_grid_saves"]), (300, "junction", 0))
        # Places of a conversation that its template marks.
        a = ask("What is the capital of Peru?")
        said = s.post(CHAT, a).json()["choices"][0]["message"]
        used = [self.placed(s, dict(a, messages=m))["place"] for m in
                (a["messages"], [SYSTEM, {"role": "user", "content": "Who?"}], a["messages"] + [said, a["messages"][1]])]
        self.assertTrue(all(used) and len(set(used)) > 1, used)

    def test_tenants(self):
        with tempfile.NamedTemporaryFile("w") as f:
            f.write("ann one\nbob two\n")
            f.flush()
            s = self.serve("--api-key-file", f.name)
        ann, bob = {"Authorization": "Bearer one"}, {"Authorization": "Bearer two"}
        s.post(CHAT, ask("The password is swordfish, remember it."), ann)
        e = self.explain(s, ask("The password is unknown to me."), bob)
        self.assertGreater(e["first_diff"]["position"], 0)
        self.assertEqual((e["first_diff"]["before"], e["first_diff"]["after"]["text"][0]), (None, " "))
        tree = s.ask("GET", "/v1/cache", headers=ann).text()
        self.assertNotIn("swordfish", tree)

    def test_text_of_nodes(self):
        s = self.serve()
        s.post(CHAT, ask("The password is swordfish, remember it."))
        nodes = {n["id"]: n for n in s.ask("GET", "/v1/cache").json()["nodes"]}
        whole = ""
        for i, n in sorted(nodes.items(), key=lambda kv: kv[1]["begin"]):
            r = s.ask("GET", "/v1/cache/nodes/%d" % i).json()
            self.assertEqual((r["id"], r["begin"], r["end"]), (i, n["begin"], n["end"]))
            whole += r["text"]
        self.assertIn("The password is swordfish, remember it.", whole)
        for bad in ("99999", "x", "", "1x", "-1", "18446744073709551616"):
            self.assertEqual(s.ask("GET", "/v1/cache/nodes/" + bad).status, 404, bad)
        with tempfile.NamedTemporaryFile("w") as f:
            f.write("ann one\nbob two\n")
            f.flush()
            s = self.serve("--api-key-file", f.name)
        ann = {"Authorization": "Bearer one"}
        s.post(CHAT, ask("My password."), ann)
        for n in s.ask("GET", "/v1/cache", headers=ann).json()["nodes"]:
            self.assertEqual(s.ask("GET", "/v1/cache/nodes/%d" % n["id"], headers=ann).status, 403)

    def test_bad(self):
        s = self.serve()
        for path, body, status in (("explain", "{", 400), ("explain", {}, 400), ("explain", {"messages": []}, 400),
                                   ("pin", {"messages": 5}, 400), ("pin", {"node": 77}, 404), ("pin", ask("x"), 404),
                                   ("drop", {"node": 77}, 404), ("drop", {}, 400), ("drop", "[", 400), ("pin", {"node": "x"}, 400), ("drop", {"node": "x"}, 400),
                                   ("drop", {"cache_salt": 5}, 400), ("drop", {"all": 1}, 400), ("drop", {"all": True, "node": 1}, 400),
                                   ("drop", {"all": True, "cache_slat": "x"}, 400), ("explain", {"prompt": ["x", "y"]}, 400),
                                   ("pin", {"prompt": ["x", "y"]}, 400), ("pin", {"node": 1, "zork": 1}, 400), ("warm", {"prompt": ""}, 400),
                                   ("explain", ask("x", cache_salt=5), 400), ("explain", ask("x", cache_salt="s" * 257), 400)):
            r = s.post("/v1/cache/" + path, body)
            self.assertEqual(r.status, status, (path, body, r.text()))
            self.assertTrue(r.error()["message"])
        # Unknown members are told of here, too; and a body of any API will do.
        self.assertEqual(s.post("/v1/cache/explain", ask("x", zork=1)).headers["x-weft-warning"], "unknown fields: zork")
        n = s.post("/v1/cache/explain", {"messages": [{"role": "user", "content": "x"}]}).json()["prompt_tokens"]
        for body, headers in (({"input": "x"}, {}), ({"messages": [{"role": "user", "content": [{"type": "text", "text": "x"}]}], "system": ""}, {}),
                              ({"messages": [{"role": "user", "content": "x"}], "stop_sequences": ["a"]}, {"anthropic-version": "2023-06-01"})):
            r = s.post("/v1/cache/explain", body, headers)
            self.assertEqual((r.status, r.json().get("prompt_tokens")), (200, n), r.text())
        self.assertIn("node must be", s.post("/v1/cache/pin", {"node": "x"}).error()["message"])


class Restarting(Test):
    def test_a_stopped_server_left_its_prefixes(self):
        """SIGTERM writes out what was kept; the next server finds it, and answers the same."""
        with tempfile.TemporaryDirectory() as d:
            body = ask("What is the capital of Peru?", cache_report=True, logprobs=True)
            first = start("--prompt-cache-dir", d)
            a = first.post(CHAT, body).json()
            first.signal()
            self.assertEqual(first.wait(), 0)
            first.close()
            second = start("--prompt-cache-dir", d)
            self.addCleanup(second.close)
            b = second.post(CHAT, body).json()
        self.assertEqual((a["usage"]["cache"]["source"], b["usage"]["cache"]["source"]), ("none", "disk"))
        self.assertGreater(b["usage"]["cache"]["resumed_at"], b["usage"]["prompt_tokens"] // 2)
        self.assertEqual(a["choices"], b["choices"])


class Ordering(Test):
    def test_warm_pin_drop(self):
        s = self.serve()
        a = ask("What is the capital of Peru?")
        e = s.post("/v1/cache/warm", a).json()
        self.assertEqual((e["resumed_at"], e["computed"]), (0, e["prompt_tokens"]))
        e = self.explain(s, a)
        self.assertGreater(e["resumed_at"], e["prompt_tokens"] // 2)
        tree = s.ask("GET", "/v1/cache").json()
        self.assertEqual(tree["states"], sum(n["state"] for n in tree["nodes"]))
        self.assertGreater(tree["states"], 0)
        self.assertGreaterEqual(tree["bytes"], sum(n["bytes"] for n in tree["nodes"]))
        at = {n["id"]: n for n in tree["nodes"]}
        for n in tree["nodes"]:
            self.assertLess(n["begin"], n["end"])
            self.assertEqual(n["begin"], at[n["parent"]]["end"] if n["parent"] else 0)
        self.assertEqual(s.post("/v1/cache/pin", a).json(), {"object": "cache", "done": True})
        self.assertEqual(sum(n["pinned"] for n in s.ask("GET", "/v1/cache").json()["nodes"]), 1)
        self.assertEqual(s.post("/v1/cache/unpin", a).status, 200)
        self.assertEqual(sum(n["pinned"] for n in s.ask("GET", "/v1/cache").json()["nodes"]), 0)
        self.assertEqual(s.post("/v1/cache/drop", {"all": True}).json(), {"object": "cache", "dropped": tree["states"]})
        self.assertEqual(self.explain(s, a)["resumed_at"], 0)
        # Only what the salt covers goes.
        s.post("/v1/cache/warm", a)
        s.post("/v1/cache/warm", dict(a, cache_salt="x"))
        self.assertGreater(s.post("/v1/cache/drop", {"cache_salt": "x"}).json()["dropped"], 0)
        self.assertEqual(self.explain(s, dict(a, cache_salt="x"))["resumed_at"], 0)
        self.assertGreater(self.explain(s, a)["resumed_at"], 0)

    def test_warm_in_every_form(self):
        """A body of any API warms; with sanitizers, what its API keeps of a request does not leak."""
        s = self.serve()
        for body in {"prompt": "One two three.", "logprobs": 2}, {"prompt": ["a", "b"]}, {"input": "x", "instructions": "y"}, \
                {"system": "s", "messages": [{"role": "user", "content": "x"}], "max_tokens": 1}, ask("x"):
            r = s.post("/v1/cache/warm", body)
            self.assertEqual((r.status, r.json()["computed"] > 0), (200, True), r.text())


WEATHER = [{"type": "function", "function": {"name": "get_weather", "description": "Get the weather of a city.", "parameters": {
    "type": "object", "properties": {"city": {"type": "string", "description": "Name of the city"}}, "required": ["city"]}}}]


class Replaying(Test):
    """test_turns.py has the cases; here the engine that computes and keeps."""

    def talk(self, s, salt, mutate, cities):
        messages, out = [], []
        for city in cities:
            messages.append({"role": "user", "content": "What is the weather in %s?" % city})
            for _ in range(2):
                r = s.post(CHAT, {"messages": messages, "tools": WEATHER, "cache_salt": salt, "temperature": 0,
                                  "max_tokens": 80, "chat_template_kwargs": {"enable_thinking": True},
                                  "cache_report": True}).json()
                m, u = r["choices"][0]["message"], r["usage"]
                calls = m.get("tool_calls", [])
                out.append((m["content"], m.get("reasoning_content"), [c["function"] for c in calls],
                            u["prompt_tokens"], u["completion_tokens"], u["prompt_tokens_details"]["cached_tokens"]))
                messages.append(mutate(copy.deepcopy(m)))
                if not calls:
                    break
                for c in calls:
                    messages.append({"role": "tool", "tool_call_id": c["id"], "content": '{"city": "%s", "sky": "clear"}' % city})
        return out

    def test_a_perfect_client_finds_no_more(self):
        s = self.serve()

        def silent(m):
            m.pop("reasoning_content", None)
            return m

        def spread(m):
            for c in m.get("tool_calls", []):
                c["function"]["arguments"] = json.dumps(json.loads(c["function"]["arguments"]), indent=2)
            return dict(m, content="\n%s " % m["content"] if m["content"] else m["content"], audio=None)

        cities = ["Paris", "Rome"] if QUICK else ["Paris", "Rome", "Oslo", "Madrid"]
        want = self.talk(s, "a", lambda m: m, cities)
        for i, (_, _, calls, prompt, output, _) in enumerate(want[:-1]):
            # Within a user's turn all goes on from the last sampled token.
            if calls:
                self.assertGreaterEqual(want[i + 1][5], prompt + output - 1, i)
        self.assertGreater(sum(1 for w in want if w[2]), 1)
        for salt, mutate in (("b", silent), ("c", spread), ("d", lambda m: silent(spread(m)))):
            self.assertEqual(self.talk(s, salt, mutate, cities), want, salt)
        # A server that remembers nothing reads another prompt.
        cold = self.serve("--turn-replay", "off")
        self.assertNotEqual(self.talk(cold, "a", silent, cities), want)


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0]] + sys.argv[3:])
