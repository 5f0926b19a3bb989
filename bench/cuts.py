#!/usr/bin/env python3
"""Requests that end while they are prepared: how long their work goes on after that.

    bench/cuts.py WEFT MODEL [--tries N] [--by deadline|leaving|DELETE ...]

Starts a server, and gives requests that would take far longer, one after the other, and ends each at another moment.

A deadline is counted by the server's clock, from the deadline to when nothing runs for the request any more: total_ms of
the log, which begins when the request is complete with its body and ends when its work is at rest, less the deadline.  The
transfer of the body is in neither.  Leaving and DELETE are counted by the client's clock, from the close of the connection
or from before DELETE is sent, to the first answer of /metrics that says that nothing is prepared: an exchange or two of some
tenths of a millisecond are in it.  Requests that ended too late, when they were no longer prepared, are left out and told.
"""
import argparse
import json
import os
import random
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "tests", "server"))
from serverkit import Server  # noqa: E402

CHAT = "/v1/chat/completions"
WAYS = ("deadline", "leaving", "DELETE")
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


def record(server, name):
    """The line of the log of one request, which comes after its work."""
    while not (mine := [r for r in server.records("request") if r["id"] == name]):
        pass
    return mine[0]


def run_until_deadline(server, path, body, ms, name):
    """Milliseconds from the deadline to the end of its work; None where the work was done before it."""
    r = server.post(path, body, {"x-request-deadline-ms": str(ms), "x-request-id": name})
    server.until("nothing is prepared", prep_running=0, prep_waiting=0)
    if r.status != 504 or "prepared" not in r.text():
        return None
    return record(server, name)["total_ms"] - ms


def run_until_asked(server, path, body, ms, name, by):
    """Milliseconds from the client's leaving or DELETE, ms after its work began, to the end of its work; or None."""
    c = server.connect()
    c.request("POST", path, body, {"x-request-id": name})
    server.at_least("weft_prep_running", 1)
    time.sleep(ms / 1000)   # the moment is what is varied; nothing is waited for
    begin = time.monotonic()
    if by == "leaving":
        c.close()
    elif server.ask("DELETE", "/v1/requests/" + name).status != 200:
        begin = None
    server.until("nothing is prepared", prep_running=0, prep_waiting=0)
    took = begin and 1000 * (time.monotonic() - begin)
    c.close()
    return took if record(server, name)["finish"] == "cancelled" else None


def main():
    a = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    a.add_argument("weft")
    a.add_argument("model")
    a.add_argument("--tries", type=int, default=20)
    a.add_argument("--by", nargs="+", choices=WAYS, default=WAYS)
    a = a.parse_args()
    server = Server([a.weft, "serve", a.model, "--port", "0", "--port-file", "{port_file}", "--threads", "1", "--log-format", "json"])
    try:
        for by in a.by:
            for what, (path, body) in works().items():
                body = json.dumps(body)
                over, late = [], 0
                for i in range(a.tries):
                    ms, name = 1 + i * 60 // a.tries, "%s-%s-%d" % (by, len(what), i)
                    took = (run_until_deadline(server, path, body, ms, name) if by == "deadline"
                            else run_until_asked(server, path, body, ms, name, by))
                    if took is None:
                        late += 1
                    else:
                        over.append(took)
                over.sort()
                print("%-8s %-38s %2d cut, %2d not" % (by, what, len(over), late)
                      + ("; ms after it: median %.1f, longest %.1f" % (over[len(over) // 2], over[-1]) if over else ""), flush=True)
    finally:
        server.close()


if __name__ == "__main__":
    main()
