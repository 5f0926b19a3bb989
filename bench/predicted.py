#!/usr/bin/env python3
"""Cached tokens predicted from kv-events against those that requests get, over conversations that outgrow the cache.

    bench/predicted.py WEFT MODEL [--requests N] [--cache BYTES] [--seed N] [-- OPTIONS OF weft serve]

Before each request the prompt is rendered and looked up in what the events said.  A false hit is a request
that gets fewer tokens than were predicted.
"""
import argparse
import os
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "tests", "server"))
from kv_router import Router, Score, Talks, predicted  # noqa: E402
from serverkit import Server  # noqa: E402


def main():
    p = argparse.ArgumentParser()
    p.add_argument("weft")
    p.add_argument("model")
    p.add_argument("--requests", type=int, default=10000)
    p.add_argument("--cache", default="8M")
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("options", nargs="*")
    a = p.parse_args()
    with tempfile.TemporaryDirectory() as d:
        events, replay = "ipc://%s/events" % d, "ipc://%s/replay" % d
        server = Server([a.weft, "serve", a.model, "--port", "0", "--port-file", "{port_file}", "--threads", "1", "--log-level", "warn",
                         "--prompt-cache-bytes", a.cache, "--tune", "kv-events=" + events, "--tune", "kv-events-replay=" + replay, *a.options])
        router, talks, score, began = Router(events, replay), Talks(a.seed), Score(), time.monotonic()
        while score.n < a.requests:
            predicted(server, router, talks, score)
            if score.n % 500 == 0:
                print("%.0f s: %s" % (time.monotonic() - began, score.text()), flush=True)
        m = server.metrics()
        print("blocks of %d: %d announced, %d withdrawn, %d states evicted, %d batches, %d of them replayed" % (
            router.size, m["weft_kv_blocks_stored_total"], m["weft_kv_blocks_removed_total"], m["weft_prefix_evicted_total"], router.next, router.replayed))
        print(score.text())
        router.close()
        server.close()
        return score.false > 0


if __name__ == "__main__":
    sys.exit(main())
