#!/usr/bin/env python3
"""One greedy client and others, on a running server: how long the others wait.

    bench/fairness.py URL [--long WORDS] [--short WORDS] [--count N] [--tries N]

Prints the time to the first piece of short prompts, alone and while another client keeps N
long prompts waiting, and the longest gap in an answer that runs meanwhile.  Clients are told
apart by the field "user".  Prompts are random words, so nothing is found in a cache.
"""
import argparse
import http.client
import json
import random
import sys
import threading
import time
import urllib.parse

from serving import WORDS


def prompt(tokens, rng):
    return " ".join(rng.choice(WORDS) for _ in range(tokens))


def ask(url, user, text, max_tokens):
    """Times of the pieces, from the sending; the first element is the status."""
    u = urllib.parse.urlparse(url)
    c = http.client.HTTPConnection(u.hostname, u.port, timeout=300)
    began = time.monotonic()
    c.request("POST", "/v1/completions", json.dumps({
        "prompt": text, "max_tokens": max_tokens, "stream": True, "user": user, "temperature": 1, "ignore_eos": True,
    }), {"Content-Type": "application/json"})
    r = c.getresponse()
    times = []
    for line in r:
        if line.startswith(b"data: {"):
            times.append(time.monotonic() - began)
    c.close()
    return r.status, times


def middle(values, share):
    values = sorted(values)
    return values[round(share * (len(values) - 1))]


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("url")
    p.add_argument("--long", type=int, default=3000, help="words of the greedy client's prompts")
    p.add_argument("--short", type=int, default=300, help="of the others'")
    p.add_argument("--count", type=int, default=60, help="how many of the long ones at once")
    p.add_argument("--tries", type=int, default=15, help="short ones, alone and beside")
    p.add_argument("--pause", type=float, default=.3, help="seconds between two of them, beside")
    p.add_argument("--seed", type=int, default=1)
    a = p.parse_args()
    rng = random.Random(a.seed)

    def shorts(n, pause):
        out = []
        for i in range(n):
            status, t = ask(a.url, f"short{rng.random()}", prompt(a.short, rng), 4)
            assert status == 200, status
            out.append(t[0])
            time.sleep(pause)
        return out

    shorts(3, 0)
    alone = shorts(a.tries, 0)
    stream, greedy = [], []
    threads = [threading.Thread(target=lambda: stream.append(ask(a.url, "stream", prompt(20, rng), 1500)))]
    threads += [threading.Thread(target=lambda t=prompt(a.long, rng): greedy.append(ask(a.url, "greedy", t, 16)))
                for _ in range(a.count)]
    for t in threads:
        t.start()
        time.sleep(0.01)
    time.sleep(1)
    beside = shorts(a.tries, a.pause)
    still = sum(t.is_alive() for t in threads[1:])
    for t in threads:
        t.join()
    refused = [s for s, _ in greedy if s != 200]
    firsts = [t[0] for s, t in greedy if s == 200 and t]
    if not firsts:
        sys.exit(f"none of {len(greedy)} long prompts was answered ({len(refused)} refused, status "
                 f"{', '.join(map(str, sorted(set(refused)))) or 200}): there was nobody to wait for. "
                 "Fewer words (--long), fewer prompts (--count), or a server that takes more (--ctx-size, --queue-seconds)")
    if stream[0][0] != 200 or len(stream[0][1]) < 2:
        sys.exit(f"the answer that was to run meanwhile did not (status {stream[0][0]}, {len(stream[0][1])} pieces)")
    gaps = [y - x for x, y in zip(stream[0][1], stream[0][1][1:])]
    both = "short prompts (%d words), first piece: alone median %.3f s, 90%% %.3f s, most %.3f s; beside %d prompts of %d words " \
           "median %.3f s, 90%% %.3f s, most %.3f s"
    marks = (.5, .9, 1)
    print(both % (a.short, *(middle(alone, m) for m in marks), a.count, a.long, *(middle(beside, m) for m in marks)))
    print("times as long as the median alone: median %.2f, 90%% %.2f, most %.2f" %
          tuple(middle(beside, m) / middle(alone, .5) for m in marks))
    print(f"when the last short one was answered {still} of the long ones had not been; refused "
          f"{len(refused)}; their first piece: median {middle(firsts, .5):.1f} s, most {max(firsts):.1f} s")
    print(f"an answer of {len(gaps) + 1} pieces that ran meanwhile: longest gap {1e3 * max(gaps):.0f} ms, 99% "
          f"{1e3 * middle(gaps, .99):.0f} ms, median {1e3 * middle(gaps, .5):.0f} ms")


main()
