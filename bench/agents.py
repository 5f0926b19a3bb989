#!/usr/bin/env python3
"""What a long session of a coding agent costs: bench/agents.py WEFT MODEL [--turns 60]

A session with tools in which the history grows, results come back, answers are sent back as they came, and reminders are put in
between, as agents do.  Each turn's prompt tokens that were computed are compared with those that are new since the turn before: what is
computed beyond these was known.  What the template writes otherwise than before counts as new.  Every turn is also asked of a server that keeps no prefix (but remembers its answers' tokens, as the first
does: the prompts are the same): the answers must be the same, byte for byte.  Prints one line a tenth turn and one at the end.

The servers are started with a context of 256 tokens a turn, which such a session stays below; --ctx takes another.  A folder whose
model has less (weft-tiny has 4,096) is served as a copy that says it has so many: the bytes stay comparable, the text was poor before."""
import argparse
import os
import random
import sys
import tempfile

from serving import Serving, post, said, with_context

parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
parser.add_argument("weft")
parser.add_argument("model")
parser.add_argument("--turns", type=int, default=60)
parser.add_argument("--answer", type=int, default=24, help="tokens of an answer, at most")
parser.add_argument("--result", type=int, default=200, help="words of a tool's result, at most")
parser.add_argument("--verbose", action="store_true")
parser.add_argument("--ctx", type=int, default=0, help="tokens of the servers' context; 0: 256 a turn")
options = parser.parse_args()

TOOLS = [{"type": "function", "function": {"name": n, "description": "Does it.", "parameters": {
    "type": "object", "properties": {k: {"type": t} for k, t in p.items()}, "required": list(p)[:1], "additionalProperties": False}}}
    for n, p in {"read": {"path": "string", "limit": "integer"}, "bash": {"command": "string"}, "edit": {"path": "string", "old": "string", "new": "string"}}.items()]
HEADER = "<think>\n\n</think>\n\n"  # what a prompt may end with, and an answer then says otherwise
WORDS = "the capital of Peru is Lima and what was in the file that you have read is a list of names".split()


def text_of(messages):
    return post(warm.port, "/apply-template", {"messages": messages, "tools": TOOLS})["prompt"]


def same(a, b):
    """Characters that both begin with."""
    n = next((i for i, (x, y) in enumerate(zip(a, b)) if x != y), None)
    return min(len(a), len(b)) if n is None else n


def ask(port, messages, turn):
    body = {"messages": messages, "tools": TOOLS, "temperature": 0.7, "seed": turn, "max_tokens": options.answer}
    if turn % 3:
        body["tool_choice"] = "required"  # a small model would never call
    return post(port, "/v1/chat/completions", body)


def results(draw, message):
    """What the session goes on with: results of its calls, or another question; now and then a reminder."""
    out = []
    for call in message.get("tool_calls") or []:
        out.append({"role": "tool", "tool_call_id": call["id"], "content": " ".join(draw.choices(WORDS, k=draw.randint(options.result // 10, options.result)))})
    if not out:
        out.append({"role": "user", "content": " ".join(draw.choices(WORDS, k=draw.randint(4, 15)))})
    if draw.random() < 0.2:
        out.append({"role": "system", "content": "Remember: " + " ".join(draw.choices(WORDS, k=6))})
    return out


context = options.ctx or 256 * options.turns
more = ["--ctx-size", str(context)]
folder = tempfile.TemporaryDirectory()
model = with_context(options.model, folder.name, context)
warm, cold = (Serving(options.weft, model, "--threads", "1", *more, *kept) for kept in ([], ["--prompt-cache-bytes", "0"]))
try:
    draw = random.Random(1)
    messages = [{"role": "system", "content": "You are an agent. " + " ".join(draw.choices(WORDS, k=40))}, {"role": "user", "content": "What is the capital of Peru?"}]
    asked = computed = new = before = rewritten = differ = calls = 0
    last = ""
    for turn in range(options.turns):
        answer = ask(warm.port, messages, turn)
        usage, message = answer["usage"], answer["choices"][0]["message"]
        prompt, cached = usage["prompt_tokens"], usage["prompt_tokens_details"]["cached_tokens"]
        asked += prompt
        computed += prompt - cached
        # Templates write turns otherwise once the user spoke again (Qwen's drop thoughts, empty ones too): that is new as well.
        text = text_of(messages)
        common = same(text, last)
        fresh = prompt - before if common + len(HEADER) >= len(last) else len(post(warm.port, "/tokenize", {"content": text[common:]})["tokens"])
        rewritten += fresh - (prompt - before)
        new += fresh
        last = text
        if options.verbose:
            print("turn %2d: %5d prompt, %4d new, %4d computed, last %s" % (turn + 1, prompt, fresh, prompt - cached, messages[-1]["role"]))
        before = prompt + usage["completion_tokens"]
        differ += said(ask(cold.port, messages, turn)["choices"][0]["message"]) != said(message)
        if turn % 10 == 9:
            print("turn %2d: prompt of %5d tokens, %4d computed" % (turn + 1, prompt, prompt - cached), flush=True)
        sent = {"role": "assistant", "content": message.get("content")}
        if message.get("tool_calls"):
            sent["tool_calls"] = message["tool_calls"]
        if message.get("reasoning_content"):
            sent["reasoning_content"] = message["reasoning_content"]
        calls += len(message.get("tool_calls") or [])
        messages += [sent] + results(draw, message)
    print("%d turns, %d calls: %d prompt tokens, %d new (%d of them old turns that the template wrote otherwise), %d computed: %.2f %% beyond the new ones; %d of %d answers differ from a cold server's"
          % (options.turns, calls, asked, new, rewritten, computed, 100 * (computed - new) / (asked - new), differ, options.turns))
finally:
    for server in (warm, cold):
        server.close()
sys.exit(differ > 0)
