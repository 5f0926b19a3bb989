"""Prove that render.py and chat_template.jinja write the same text, on random conversations of all tasks.

    /usr/bin/python3 tools/train/check_template.py models/weft-tiny [count]
"""
import json
import random
import sys

import jinja2
from jinja2.ext import loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment

import data
from render import dumps, render


def fail(message):
    raise ValueError(message)


def main():
    env = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols])
    env.filters["tojson"] = lambda x, **k: json.dumps(x, ensure_ascii=False)
    env.globals["raise_exception"] = fail
    tpl = env.from_string(open(sys.argv[1] + "/chat_template.jinja").read())
    r = random.Random(5)
    count = int(sys.argv[2]) if len(sys.argv) > 2 else 1000
    for i in range(count):
        s = data.make(r, test=i % 3 == 0)
        if i % 5 == 0:      # some with pictures
            for m in s["messages"]:
                if m["role"] in ("user", "tool") and r.random() < 0.5:
                    parts = [{"type": "text", "text": m["content"]}, {"type": "image"}, {"type": "image_url", "image_url": {"url": "data:"}}]
                    m["content"] = r.sample(parts, r.randint(1, 3))
        m = s["messages"]
        a = "".join(x for x, _ in render(m, s["tools"]))
        b = tpl.render(messages=m, tools=s["tools"])
        assert a == b, (a, b)
        # the prompt that asks for the last answer is a prefix of the whole
        think = bool(m[-1].get("reasoning_content"))
        kw = {"enable_thinking": think} if think or r.random() < 0.5 else {}
        p = tpl.render(messages=m[:-1], tools=s["tools"], add_generation_prompt=True, **kw)
        assert p == "".join(x for x, _ in render(m[:-1], s["tools"], think, True)), p
        last_text = {"role": "assistant", **{k: v for k, v in m[-1].items() if k != "role"}}
        assert b.startswith(p), (p, b)
        # a think block inside the content gives the same as reasoning_content
        if think and not m[-1].get("tool_calls"):
            m2 = m[:-1] + [{"role": "assistant", "content": "<think>\n" + m[-1]["reasoning_content"] + "\n</think>\n\n" + m[-1]["content"]}]
            assert tpl.render(messages=m2, tools=s["tools"]) == b
    print(count, "conversations equal")


main()
