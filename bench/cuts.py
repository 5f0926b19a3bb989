#!/usr/bin/env python3
"""Deadlines that pass while a request is prepared: how long its work goes on after them.

    bench/cuts.py WEFT MODEL [--tries N]

Starts a server, and gives requests that would take far longer deadlines of many lengths, one request after the other.
Counted is by the server's clock, from the deadline to when nothing runs for the request any more: total_ms of the log,
which begins when the request is complete with its body and ends when its work is at rest, less the deadline.  The transfer
of the body is in neither.  Deadlines that passed after the work was done, or in the engine, are left out and told.
"""
import argparse
import json
import os
import random
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "tests", "server"))
from serverkit import Server  # noqa: E402

CHAT = "/v1/chat/completions"
EXPLODES = "^(a|b)*a(a|b){20}$"


def chat(content="x", **more):
    return {"messages": [{"role": "user", "content": content}], "max_tokens": 1, **more}


def works():
    schema = {"type": "object", "properties": {"a": {"type": "string", "pattern": EXPLODES}}}
    tools = [{"type": "function", "function": {"name": "f%d" % i, "parameters": schema}} for i in range(2000)]
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "[" + "1," * 1800000 + "1]"}}
    rng = random.Random(1)
    word = ["".join(rng.choices("abcdefghij", k=rng.randrange(1, 9))) for _ in range(1000)]
    return {
        "tokenising a word of 8 MB": ("/tokenize", {"prompt": "a" * (8 << 20)}),
        "tokenising words, 8 MB": ("/tokenize", {"prompt": " ".join(rng.choices(word, k=1500000))}),
        "2,000 exploding tools": (CHAT, chat(tools=tools)),
        "a template over 100,000 messages": (CHAT, {"max_tokens": 1, "messages": [
            {"role": "assistant" if i % 2 else "user", "content": "x"} for i in range(100000)]}),
        "JSON in a string, 1.8 million values": (CHAT, {"max_tokens": 1, "messages": [
            {"role": "user", "content": "x"}, {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": "c", "content": "x"}]}),
        "an expression of too many states": (CHAT, chat(guided_regex="^(a|b)*a(a|b){300}$")),
    }


def main():
    a = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    a.add_argument("weft")
    a.add_argument("model")
    a.add_argument("--tries", type=int, default=20)
    a = a.parse_args()
    server = Server([a.weft, "serve", a.model, "--port", "0", "--port-file", "{port_file}", "--threads", "1", "--log-format", "json"])
    tried = 0
    try:
        for name, (path, body) in works().items():
            body = json.dumps(body)
            over, late = [], 0
            for i in range(a.tries):
                ms, me = 1 + i * 60 // a.tries, "cut-%d" % tried
                tried += 1
                r = server.post(path, body, {"x-request-deadline-ms": str(ms), "x-request-id": me})
                server.until("nothing is prepared", prep_running=0, prep_waiting=0)
                if r.status == 504 and "prepared" in r.text():
                    mine, = [r for r in server.records("request") if r["id"] == me]
                    over.append(mine["total_ms"] - ms)
                else:
                    late += 1
            over.sort()
            print("%-38s %2d cut, %2d not" % (name, len(over), late)
                  + ("; ms after the deadline: median %.1f, longest %.1f" % (over[len(over) // 2], over[-1]) if over else ""), flush=True)
    finally:
        server.close()


if __name__ == "__main__":
    main()
