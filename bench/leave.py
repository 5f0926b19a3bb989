#!/usr/bin/env python3
"""Clients that leave a running server: how soon it notices, and how soon nothing runs for them.

    bench/leave.py URL [--tries N] [--tokens N]

In every stage of a request, streaming or not, a client closes its connection.  Prints, for each
stage, the time until the server counts it as gone, and until no request runs or waits that
should not; both as /metrics tells, asked without a pause, so they hold the time of that answer.
"""
import argparse
import http.client
import json
import random
import re
import socket
import time
import urllib.parse

GONE = re.compile(rb'^weft_requests_cancelled_total\{cause="disconnect",stage="(\w+)"\} (\d+)$', re.M)
PATIENCE = 60


class Server:
    def __init__(self, url):
        u = urllib.parse.urlparse(url)
        self.at = (u.hostname, u.port or 80)
        self.conn = http.client.HTTPConnection(*self.at, timeout=PATIENCE)
        self.slots = self.gauge("states")

    def page(self):
        self.conn.request("GET", "/metrics")
        return self.conn.getresponse().read()

    def gauge(self, name):
        return int(re.search(rb"^weft_%s (\d+)" % name.encode(), self.page(), re.M).group(1))

    def gone(self, page=None):
        return {k.decode(): int(v) for k, v in GONE.findall(page or self.page())}

    def until(self, **want):
        """Until these gauges are such, or more."""
        end = time.monotonic() + PATIENCE
        while any(self.gauge(k) < v for k, v in want.items()):
            assert time.monotonic() < end, "never %s" % want

    def idle(self):
        while self.gauge("requests_running") or self.gauge("requests_waiting"):
            time.sleep(0.01)

    def send(self, body, part=1.0):
        """The connection, with this share of the request's body on its way."""
        data = json.dumps(body).encode()
        s = socket.create_connection(self.at)
        s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        s.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
                  % len(data) + data[:int(part * len(data))])
        return s


def answer(**more):
    return {"prompt": [100 + i % 7 for i in range(20)], "max_tokens": 3000, "ignore_eos": True, "temperature": 1, **more}


def prompt(n, **more):
    return {"prompt": [random.randrange(50, 400) for _ in range(n)], "max_tokens": 1, "ignore_eos": True, **more}


def read_some(s):
    got = b""
    while b"data: {" not in got:
        got += s.recv(65536)


# Each: a request in its stage, its connection, and the others' that stay.

def body(v, a, stream):
    s = v.send(answer(stream=stream), part=.7)
    time.sleep(.02)
    return s, []


def preparing(v, a, stream):
    return v.send({"prompt": "word and " * (a.text // 9), "max_tokens": 1, "stream": stream}), []


def queued(v, a, stream):
    others = [v.send(answer(stream=True)) for _ in range(v.slots)]
    v.until(requests_running=v.slots)
    s = v.send(prompt(30, stream=stream))
    v.until(requests_waiting=1)
    return s, others


def prefill(v, a, stream):
    s = v.send(prompt(a.tokens, stream=stream))
    v.until(requests_running=1)
    return s, []


def together(v, a, stream):
    others = [v.send(prompt(40)) for _ in range(3)]
    s = v.send(prompt(a.tokens, stream=stream))
    others += [v.send(prompt(40)) for _ in range(3)]
    v.until(requests_running=1)
    return s, others


def decode(v, a, stream):
    s = v.send(answer(stream=stream, speculation=False))
    if stream:
        read_some(s)
    else:
        v.until(output_tokens_total=v.gauge("output_tokens_total") + 3)
    return s, []


def speculating(v, a, stream):
    s = v.send(answer(stream=stream, temperature=0, prompt="one two three four " * 20))
    if stream:
        read_some(s)
    else:
        v.until(output_tokens_total=v.gauge("output_tokens_total") + 12)
    return s, []


def leave(v, a, stage, stream):
    """Seconds until it is counted, until nothing runs for it, and where it was."""
    before = v.gone()
    s, others = stage(v, a, stream)
    began = time.monotonic()
    s.close()
    noticed = None
    while True:
        page = v.page()
        now = time.monotonic() - began
        assert now < PATIENCE
        at = v.gone(page)
        if noticed is None and at != before:
            noticed = now
        left = [int(re.search(rb"^weft_requests_%s (\d+)" % k, page, re.M).group(1)) for k in (b"running", b"waiting")]
        # The short ones beside it end by themselves.
        if noticed is not None and sum(left) <= (len(others) if stage is queued else 0):
            break
    for o in others:
        o.close()
    v.idle()
    return noticed, now, [k for k in at if at[k] != before[k]]


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("url")
    p.add_argument("--tries", type=int, default=10, help="of each stage, streaming and not")
    p.add_argument("--tokens", type=int, default=3500, help="of a long prompt")
    p.add_argument("--text", type=int, default=1000000, help="bytes of a prompt that is long to tokenise")
    a = p.parse_args()
    v = Server(a.url)
    random.seed(1)
    print("| left while | stages counted | noticed, median | most | nothing runs for it, median | most |\n|---|---|---|---|---|---|")
    for stage in (body, preparing, queued, prefill, together, decode, speculating):
        got = [leave(v, a, stage, i % 2 == 1) for i in range(2 * a.tries)]
        count = {}
        for _, _, where in got:
            for k in where:
                count[k] = count.get(k, 0) + 1
        cells = []
        for k in (0, 1):
            times = sorted(1e3 * g[k] for g in got)
            cells += ["%.1f ms" % times[len(times) // 2], "%.1f ms" % times[-1]]
        print("| %s | %s | %s |" % (stage.__name__, ", ".join("%s %d" % kv for kv in sorted(count.items())), " | ".join(cells)),
              flush=True)


main()
