"""Write the held-out sets that script/eval runs over the server, one JSONL file per task, and the text that `weft ppl` reads.

    /usr/bin/python3 tools/train/evalset.py tools/train/eval

A line: task, messages (in the form of the chat API), tools, chat_template_kwargs, check, expect. held-out.txt: conversations of
the same kind as the chat template writes them, answers included, with a form feed between two; some are long.
"""
import json
import os
import random
import sys
import zlib

import data
from render import render

SETS = [("facts", "facts", {}, 200), ("unknown", "unknown", {}, 100), ("arithmetic", "arithmetic", {"think": False}, 150), ("arithmetic_think", "arithmetic", {"think": True}, 150), ("spell", "spell", {"think": False}, 150),
        ("lists", "lists", {}, 150), ("multi_turn", "multiturn", {}, 150), ("tool_call", "tools", {}, 150), ("tool_answer", "tools", {}, 100), ("tools_plain", "tools", {}, 80), ("json", "json", {}, 150), ("chat", "chat", {}, 40),
        ("recall_250", "recall", {"tokens": 250}, 100), ("recall_500", "recall", {"tokens": 500}, 100), ("recall_1000", "recall", {"tokens": 1000}, 100),
        ("recall_1800", "recall", {"tokens": 1800}, 50), ("recall_2000", "recall", {"tokens": 2000}, 50)]


TEXT = [("recall", {"tokens": 500}, 4), ("recall", {"tokens": 1000}, 3), ("recall", {"tokens": 2000}, 2), (None, {}, 30)]


def api(messages):
    """Arguments as JSON text and ids for the calls, as the chat API wants them."""
    out, ids = [], []
    for m in messages:
        m = dict(m)
        if m.get("tool_calls"):
            ids, calls = [], []
            for c in m["tool_calls"]:
                ids.append(f"call_{len(out)}_{len(ids)}")
                calls.append({"id": ids[-1], "type": "function", "function": {"name": c["function"]["name"], "arguments": json.dumps(c["function"]["arguments"], ensure_ascii=False)}})
            m["tool_calls"] = calls
        if m["role"] == "tool":
            m["tool_call_id"] = ids.pop(0)
        out.append(m)
    return out


def main():
    folder = sys.argv[1]
    os.makedirs(folder, exist_ok=True)
    for name, task, kw, count in SETS:
        r = random.Random(zlib.crc32(("eval " + name).encode()))
        lines, seen, tries = [], set(), 0
        while len(lines) < count:
            s = data.make(r, True, task=task, **kw)
            if task == "tools" and s["task"] != name:
                continue
            last = s["messages"][-1]
            e = {"task": name, "messages": api(s["messages"][:-1])}
            if s["tools"]:
                e["tools"] = s["tools"]
            if s["think"]:
                e["chat_template_kwargs"] = {"enable_thinking": True}
            if last.get("tool_calls"):
                e["check"], e["expect"] = "tool_calls", [{"name": c["function"]["name"], "arguments": c["function"]["arguments"]} for c in last["tool_calls"]]
            elif task == "json":
                e["check"], e["expect"] = "json", json.loads(last["content"])
            else:
                e["check"], e["expect"] = "exact", last["content"]
            line = json.dumps(e, ensure_ascii=False)
            tries += 1
            if line not in seen or tries > 20 * count:       # there are few ways to say hello
                seen.add(line)
                lines.append(line)
        open(f"{folder}/{name}.jsonl", "w").write("\n".join(lines) + "\n")
        print(name, len(lines), sum(map(len, lines)))
    r = random.Random("held-out text")
    samples = [data.make(r, True, task=task, **kw) for task, kw, count in TEXT for _ in range(count)]
    texts = ["".join(t for t, _ in render(s["messages"], s["tools"])) for s in samples]
    open(f"{folder}/held-out.txt", "w", encoding="utf-8").write("\f".join(texts))
    print("held-out.txt", len(texts), sum(map(len, texts)))


main()
