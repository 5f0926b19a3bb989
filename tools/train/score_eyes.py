"""Exact-match scores of answers about held-out pictures, measured through `weft serve`: the table of the model card.

    /usr/bin/python3 tools/train/score_eyes.py build/weft models/weft-tiny [samples of each kind]

Each question comes with a PNG of its own, drawn from a seed that training never uses, between 96 and 400 pixels wide; pairs of shape
and colour that no training picture shows are among them. Greedy, 16 requests at once, the picture before the question or behind it.
"""
import base64
import collections
import concurrent.futures
import json
import os
import random
import subprocess
import sys
import tempfile
import time
import urllib.request

import pictures

SIZES = [(128, 128), (96, 96), (256, 256), (400, 400), (320, 240), (240, 320), (320, 200), (200, 320)]


def samples(n):
    """n of each kind -> list of (kind, whether a pair is new, question, answer, PNG)"""
    r = random.Random("held-out pictures")
    have, out = collections.Counter(), []
    want = set(pictures.ASK) - {"colours"} | {"unknown"}
    while any(have[k] < n for k in want):
        s = pictures.scene(r, True)
        size = r.choice(SIZES)
        k, q, a = r.choice(pictures.questions(r, s))
        k = "colour" if k == "colours" else k
        if have[k] < n:
            have[k] += 1
            new = s["kind"] != "digit" and any(pictures.held(it["kind"], it["colour"]) for it in s["items"])
            out.append((k, new, q, a, pictures.png(pictures.draw(s, *size))))
    return out


def ask(url, i, sample):
    picture = {"type": "image_url", "image_url": {"url": "data:image/png;base64," + base64.b64encode(sample[4]).decode()}}
    parts = [picture, {"type": "text", "text": sample[2]}]
    body = {"model": "default", "temperature": 0, "max_tokens": 48, "messages": [{"role": "user", "content": parts if i % 3 else parts[::-1]}]}
    r = urllib.request.Request(url + "/v1/chat/completions", json.dumps(body).encode(), {"Content-Type": "application/json"})
    return json.load(urllib.request.urlopen(r, timeout=300))["choices"][0]["message"]["content"]


def main():
    weft, model, n = sys.argv[1], sys.argv[2], int(sys.argv[3]) if len(sys.argv) > 3 else 200
    todo = samples(n)
    with tempfile.TemporaryDirectory() as d:
        server = subprocess.Popen([weft, "serve", model, "--port", "0", "--port-file", d + "/port", "--threads", "1"], stderr=open(d + "/log", "w"), stdout=subprocess.DEVNULL)
        try:
            while not (os.path.exists(d + "/port") and open(d + "/port").read().strip()):
                if server.poll() is not None:
                    sys.exit(open(d + "/log").read())
                time.sleep(.05)
            url = "http://127.0.0.1:" + open(d + "/port").read().strip()
            with concurrent.futures.ThreadPoolExecutor(16) as pool:
                said = list(pool.map(lambda x: ask(url, *x), enumerate(todo)))
        finally:
            server.terminate()
            server.wait()
    right, new = collections.defaultdict(list), collections.defaultdict(list)
    for (k, pair, q, a, _), got in zip(todo, said):
        right[k].append(got.strip() == a)
        if pair:
            new[k].append(got.strip() == a)
        if "-v" in sys.argv and got.strip() != a:
            print(f"  {k}: {q}  want {a!r} got {got!r}")
    share = lambda v: f"{100 * sum(v) / len(v):.1f} %" if v else ""
    print("| question | samples | right | with a new pair | right |\n|---|---:|---:|---:|---:|")
    for k in sorted(right):
        print(f"| {k} | {len(right[k])} | {share(right[k])} | {len(new[k])} | {share(new[k])} |")


if __name__ == "__main__":
    main()
