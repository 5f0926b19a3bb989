#!/usr/bin/env python3
"""What images cost whoever is beside them, and whoever sends them: bench/images.py WEFT MODEL [--side 1024] [--rounds 3] [--alone 5] [-- OPTIONS]

Starts a server on a model that sees images (bench/make-checkpoint SHAPE BITS DIR --tower), with these options of `weft serve`, and measures

  gap     another's stream, in a process of its own: its gaps alone (for --alone seconds: the longer, the rarer what held it up),
          while four images of one request come in, and while a text of as many tokens does (not with --no-text); how many of
          its steps the largest is longer;
  first   seconds to the first token of a question about one image: cold, again with the image known (no tower runs, no row
          is computed twice), and of a second turn; and of a text conversation with as many tokens, first and second turn. Of
          second turns the median of 15 questions, in turn of the image and of the text.

Every round sends images that the server never saw. Prints one JSON object, medians of the rounds in it.
"""
import argparse
import base64
import http.client
import json
import multiprocessing
import os
import random
import statistics
import struct
import sys
import threading
import time
import zlib

from serving import Serving, WORDS


def png(side, seed):
    """A noisy gradient: nothing that compresses to nothing."""
    r = random.Random(seed)
    noise = [r.randrange(64) for _ in range(4096)]
    rows = []
    for y in range(side):
        base = y * 191 // side
        row = bytearray(3 * side)
        for c in range(3):
            shift = r.randrange(4096)
            row[c::3] = bytes(base + noise[(x + shift) & 4095] for x in range(side))
        rows.append(b"\0" + bytes(row))
    data = zlib.compress(b"".join(rows), 1)

    def chunk(kind, body):
        return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", side, side, 8, 2, 0, 0, 0)) + chunk(b"IDAT", data) + chunk(b"IEND", b"")


def part(side, seed):
    return {"type": "image_url", "image_url": {"url": "data:image/png;base64," + base64.b64encode(png(side, seed)).decode()}}


def text(tokens, seed):
    r = random.Random(seed)
    out = ""
    while len(out) < tokens:            # the made checkpoints' tokens are bytes
        out += r.choice(WORDS) + " "
    return out[:tokens]


SECONDS = 15    # second turns of each kind


class Server(Serving):
    def warm(self):
        """Two sequences at once, so that their memory was used before, one with an image."""
        asks = [threading.Thread(target=self.ask, args=([{"role": "user", "content": [part(64, 1), {"type": "text", "text": t}]}], 64)) for t in "ab"]
        for t in asks:
            t.start()
        for t in asks:
            t.join()

    @staticmethod
    def body(messages, tokens):
        return json.dumps({"messages": messages, "max_tokens": tokens, "stream": True, "temperature": 0, "ignore_eos": True,
                           "logit_bias": {"97": 100},  # a made checkpoint says bytes that are no text: let each token be an "a"
                           "stream_options": {"include_usage": True}}).encode()

    def count(self, messages):
        """Tokens of a prompt: nothing is computed, but images are decoded and kept."""
        c = http.client.HTTPConnection("127.0.0.1", self.port, timeout=600)
        c.request("POST", "/v1/responses/input_tokens", json.dumps({"input": [
            {"role": "user", "content": [{"type": "input_image", "image_url": p["image_url"]["url"]} if "image_url" in p else
                                         {"type": "input_text", "text": p["text"]} for p in m["content"]]} for m in messages]}),
                  {"Content-Type": "application/json"})
        return json.loads(c.getresponse().read())["input_tokens"]

    def ask(self, messages, tokens, times=None):
        return self.send(self.body(messages, tokens), times)

    def send(self, body, times=None):
        """Seconds to the first piece, the answer, usage; times receives the clock at each piece."""
        c = http.client.HTTPConnection("127.0.0.1", self.port, timeout=600)
        began, first, said, usage = time.monotonic(), None, "", None
        c.request("POST", "/v1/chat/completions", body, {"Content-Type": "application/json"})
        r = c.getresponse()
        if r.status != 200:
            sys.exit(r.read().decode())
        for line in r:
            if not line.startswith(b"data: {"):
                continue
            e = json.loads(line[6:])
            usage = e.get("usage") or usage
            delta = e["choices"][0]["delta"] if e["choices"] else {}
            if "content" in delta and "role" not in delta:
                now = time.monotonic()
                first = first or now - began
                said += delta["content"]
                if times is not None:
                    times.append(now)
        c.close()
        return first, said, usage


def gaps(times, begin, end):
    """Of those gaps that lie at least partly between the two clocks, the seconds; the stream must outlive the end."""
    if not times or times[-1] < end:
        sys.exit("the stream ended before what was to be measured beside it: give a larger --ctx-size")
    return [b - a for a, b in zip(times, times[1:]) if b > begin and a < end]


def watch(s, prompt, pipe):
    """In a process of its own: a stream without end, the clock at each piece written to the pipe."""
    class Times:
        def append(self, t):
            os.write(pipe, struct.pack("d", t))
    s.ask([{"role": "user", "content": prompt}], 100000, Times())


def gap_round(s, side, seed, seconds, beside_text):
    """Gaps of a stream that stands alone for some seconds, beside four images of one request, and beside a text of as many tokens."""
    question = [{"type": "text", "text": "what is this"}]
    n = s.count([{"role": "user", "content": [part(side, seed * 10 + 7)] * 4 + question}])  # of another image: it is kept from here on
    bodies = [s.body([{"role": "user", "content": content}], 2)
              for content in ([part(side, seed * 10 + i) for i in range(4)] + question, text(n, seed + 1))[:1 + beside_text]]
    r, w = os.pipe()
    stream = multiprocessing.Process(target=watch, args=(s, text(40, seed), w), daemon=True)
    stream.start()
    os.close(w)
    time.sleep(1)
    marks = [time.monotonic()]
    time.sleep(seconds)
    marks.append(time.monotonic())
    sides = []
    for body in bodies:
        begin = time.monotonic()
        s.send(body)
        sides.append((begin, time.monotonic()))
        time.sleep(0.5)  # the gap that this lies in ends, before what comes next can lengthen it
    stream.terminate()
    stream.join()
    data = b""
    while more := os.read(r, 1 << 16):
        data += more
    os.close(r)
    times = [t for t, in struct.iter_unpack("d", data[:len(data) // 8 * 8])]
    found = {name: gaps(times, a, b) for name, (a, b) in zip(("alone", "images", "text"), [marks] + sides)}
    step = statistics.median(found["alone"])
    out = {"tokens": n, "step_ms": 1e3 * step}
    for (begin, end), name in zip(sides, ("images", "text")):
        out[name + "_s"] = end - begin
    for name, v in found.items():
        out[name + "_median_ms"], out[name + "_99_ms"], out[name + "_largest_ms"] = (
            1e3 * x for x in (statistics.median(v), sorted(v)[len(v) * 99 // 100], max(v)))
    for other in ("alone", "text"):
        if other in found:
            out["steps_beyond_" + other] = (max(found["images"]) - max(found[other])) / step
    return out


def first_round(s, side, seed, *_):
    """Seconds to the first token, with an image and with a text as long."""
    out = {}
    q = [{"type": "text", "text": text(20, seed)}]
    talk = [{"role": "user", "content": [part(side, seed)] + q}]
    out["image_cold_s"], said, usage = s.ask(talk, 8)
    out["tokens"] = usage["prompt_tokens"]
    out["image_again_s"] = s.ask(talk, 8)[0]
    talks = {"image": talk + [{"role": "assistant", "content": said}]}
    talk = [{"role": "user", "content": text(out["tokens"] - 30, seed)}]
    out["text_cold_s"], said, _ = s.ask(talk, 8)
    talks["text"] = talk + [{"role": "assistant", "content": said}]
    took = {name: [] for name in talks}
    for k in range(SECONDS):
        for name, talk in talks.items():
            first, _, usage = s.ask(talk + [{"role": "user", "content": text(40, seed + 1 + k)}], 8)
            took[name].append(first)
            out[name + "_second_cached"] = usage["prompt_tokens_details"]["cached_tokens"]
    for name, v in took.items():
        out[name + "_second_s"] = statistics.median(v)
    out["second_ratio"] = out["image_second_s"] / out["text_second_s"]
    return out


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("weft")
    p.add_argument("model")
    p.add_argument("--side", type=int, default=1024)
    p.add_argument("--rounds", type=int, default=3)
    p.add_argument("--seed", type=int, default=1000, help="of the pictures and texts")
    p.add_argument("--only", choices=("gap", "first"))
    p.add_argument("--alone", type=float, default=5, metavar="SECONDS")
    p.add_argument("--no-text", action="store_true")
    at = sys.argv.index("--") if "--" in sys.argv else len(sys.argv)
    more = sys.argv[at + 1:]
    a = p.parse_args(sys.argv[1:at])
    out = {}
    for name, measure in (("gap", gap_round), ("first", first_round)):
        if a.only in (None, name):
            rounds = []
            for i in range(a.rounds):
                s = Server(a.weft, a.model, *more)
                s.warm()
                rounds.append(measure(s, a.side, a.seed + 10 * i, a.alone, not a.no_text))
                s.close()
            out[name] = {k: round(statistics.median([r[k] for r in rounds]), 4) for k in rounds[0]}
    print(json.dumps(out, indent=1))


if __name__ == "__main__":
    main()
