"""Hosts that pictures are fetched from (--image-host), which are slow, without end, or short of something.
Run as: test_hosts.py STUB_SERVER TOKENIZER.JSON"""
import os
import resource
import socket
import sys
import tempfile
import threading
import time
import unittest

from serverkit import CHAT, COMPLETIONS, PATIENCE, stub
from test_images import TEMPLATE

ALL, CLIENT = 64, 32  # of server/http/workers.h: requests that wait for other machines, and those of one client


class Host:
    """Accepts connections; answer(connection, path) is called on a thread for each."""

    def __init__(self, answer):
        self.answer, self.s = answer, socket.socket()
        self.s.bind(("127.0.0.1", 0))
        self.s.listen(256)
        self.port = self.s.getsockname()[1]
        threading.Thread(target=self.loop, daemon=True).start()

    def loop(self):
        try:
            while True:
                c, _ = self.s.accept()
                threading.Thread(target=self.one, args=(c,), daemon=True).start()
        except OSError:
            pass

    def one(self, c):
        try:
            head = b""
            while b"\r\n\r\n" not in head:
                head += c.recv(4096)
            self.answer(c, head.split(b" ")[1].decode())
        except OSError:
            pass
        c.close()

    def close(self):
        self.s.shutdown(socket.SHUT_RDWR)
        self.s.close()


def send_picture(c, path):
    c.sendall(b"HTTP/1.1 200 OK\r\n\r\nPIC 1x3 " + path.encode())


class Hosts(unittest.TestCase):
    def setUp(self):
        self.file = tempfile.NamedTemporaryFile("w", suffix=".jinja")
        self.addCleanup(self.file.close)
        self.file.write(TEMPLATE)
        self.file.flush()

    def serve(self, answer, **opts):
        host = Host(answer)
        self.addCleanup(host.close)
        s = stub(sight=1, template=self.file.name, image_host="127.0.0.1:%d" % host.port, **opts)
        self.addCleanup(s.close)
        return s, host

    def body(self, url):
        return {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": url}},
                                                          {"type": "text", "text": "say rows"}]}]}

    def asked(self, s, host, path):
        return s.post(CHAT, self.body("http://127.0.0.1:%d/%s" % (host.port, path)))

    def test_waiting(self):
        """Requests that wait for a host keep neither their own client nor another from being prepared, up to a share."""
        go, came, lock = threading.Event(), [], threading.Condition()

        def slow(c, path):
            with lock:
                came.append(path)
                lock.notify()
            send_picture(c, path)
            while not go.wait(0.5):
                c.sendall(b" " * 1000)  # enough for a minute
        with tempfile.NamedTemporaryFile("w") as keys:
            keys.write("one one\ntwo two\nthree three\n")
            keys.flush()
            s, host = self.serve(slow, api_key_file=keys.name)

            def key(name):
                return {"Authorization": "Bearer " + name}

            def begin(name, i):
                c = s.connect()
                c.request("POST", CHAT, self.body("http://127.0.0.1:%d/%s-%d" % (host.port, name, i)), key(name))
                return c

            def refused(name, i):
                c = begin(name, i)
                r = c.reply()
                c.close()
                return r.status, r.error()["code"], r.headers["retry-after"]

            def wait_for(n):
                with lock:
                    self.assertTrue(lock.wait_for(lambda: len(came) == n, PATIENCE), (len(came), n))

            def texts():
                for name in ("one", "two", "three"):
                    self.assertEqual(s.post(COMPLETIONS, {"prompt": "ab", "max_tokens": 2}, key(name)).status, 200)
            waiting = []
            for name, n in (("one", 4), ("one", CLIENT), ("two", CLIENT)):
                waiting += [begin(name, i) for i in range(sum(p.startswith("/" + name) for p in came), n)]
                wait_for(len(waiting))
                texts()
                # A text that was answered may be counted for a moment more.
                end = time.monotonic() + PATIENCE
                while s.ask("GET", "/health").json()["preparing"] != len(waiting):
                    self.assertLess(time.monotonic(), end)
                if n == CLIENT:
                    self.assertEqual(refused(name, n), ((429, "client_over_share") if name == "one" else (503, "overloaded")) + ("1",))
            self.assertEqual(refused("three", 0), (503, "overloaded", "1"))
            # One that leaves makes room.
            waiting.pop().close()
            self.assertEqual(len(waiting), ALL - 1)
            go.set()
            for c in waiting:
                r = c.reply()
                self.assertEqual(r.status, 200, r.text())
                c.close()
            texts()
            waiting = [begin("three", i) for i in range(8)]
            for c in waiting:
                self.assertEqual(c.reply().status, 200)
                c.close()

    def test_headers_without_end(self):
        """What a host sends beside the picture is bounded too, wherever it stands."""
        sent = {}

        def answer(c, path):
            heads = {"/headers": b"HTTP/1.1 200 OK\r\n", "/interim": b"", "/line": b"HTTP/1.1 200 OK\r\nX: ",
                     "/trailers": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n",
                     "/late": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n9\r\nPIC 1x3 a\r\n0\r\n",
                     "/trailer-line": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nX: "}
            more = {"/interim": b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n", "/line": b"a" * 1000, "/trailer-line": b"a" * 1000}
            c.sendall(heads[path])
            sent[path] = 0
            while sent[path] < 64 << 20:
                c.sendall(more.get(path, b"X: " + b"a" * 1000 + b"\r\n"))
                sent[path] += 1000
        s, host = self.serve(answer)
        for path in ("headers", "interim", "trailers", "late", "line", "trailer-line"):
            with self.subTest(path):
                r = self.asked(s, host, path)
                self.assertEqual(r.status, 400, r.text())
                self.assertRegex(r.error()["message"], "header line" if path != "trailer-line" else "header line|receiving data")
                self.assertLess(sent["/" + path], 64 << 20)
        # What servers send is taken.
        fields = b"X: " + b"a" * 8000 + b"\r\n"

        def usual(c, path):
            c.sendall(b"HTTP/1.1 103 Early Hints\r\n" + fields + b"\r\nHTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n" + fields * 4 +
                      b"\r\n9;x=y\r\nPIC 1x3 a\r\n0\r\n" + b"X: " + b"a" * 2000 + b"\r\n\r\n")
        s, host = self.serve(usual)
        self.assertEqual(self.asked(s, host, "a").status, 200)

    def test_without_descriptors(self):
        """That the server has no descriptor left is not the client's fault."""
        with tempfile.TemporaryDirectory() as d:
            with open(os.path.join(d, "a.png"), "w") as f:
                f.write("PIC 1x3 a")
            s, host = self.serve(send_picture, image_folder=d)
            urls = "file://" + os.path.realpath(d) + "/a.png", "http://127.0.0.1:%d/a.png" % host.port
            c = s.connect()
            for url in urls:
                c.request("POST", CHAT, self.body(url))
                self.assertEqual(c.reply().status, 200)
            usual = resource.prlimit(s.proc.pid, resource.RLIMIT_NOFILE)
            held = {int(n) for n in os.listdir("/proc/%d/fd" % s.proc.pid)}
            free = next(n for n in range(len(held) + 1) if n not in held)
            for url in urls:
                resource.prlimit(s.proc.pid, resource.RLIMIT_NOFILE, (free, usual[1]))
                c.request("POST", CHAT, self.body(url))
                r = c.reply()
                self.assertEqual((r.status, r.error()["code"]), (503, "overloaded"), r.text())
                self.assertIn("Too many open files", r.error()["message"])
                resource.prlimit(s.proc.pid, resource.RLIMIT_NOFILE, usual)
                c.request("POST", CHAT, self.body(url))
                self.assertEqual(c.reply().status, 200)
            c.close()


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0]] + sys.argv[3:])
