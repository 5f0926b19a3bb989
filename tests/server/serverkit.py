"""A server process and raw sockets to it, for the black-box tests."""
import array
import json
import os
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time
import unittest

PATIENCE = 60           # seconds before a test gives up; never how long it takes


def sanitized(program):
    """Built with a sanitizer, whose memory says nothing of the program's."""
    with open(program, "rb") as f:
        text = f.read()
    return b"__asan_init" in text or b"__tsan_init" in text


def logits(weft, model, ids):
    """What `weft logits` says behind each token: a row of floats for each."""
    with tempfile.TemporaryDirectory() as d:
        path, out = os.path.join(d, "ids.json"), os.path.join(d, "out.safetensors")
        with open(path, "w") as f:
            json.dump(ids, f)
        subprocess.run([weft, "logits", model, "--ids", path, "--out", out], check=True, stdout=subprocess.DEVNULL,
                       stderr=subprocess.DEVNULL)
        with open(out, "rb") as f:
            data = f.read()
    size = struct.unpack("<Q", data[:8])[0]
    about = json.loads(data[8:8 + size])["logits"]
    rows, vocab = about["shape"]
    flat = array.array("f", data[8 + size + about["data_offsets"][0]:8 + size + about["data_offsets"][1]])
    return [flat[i * vocab:(i + 1) * vocab] for i in range(rows)]


class Server:
    """Starts argv (with {port_file} filled in), waits until it listens."""

    def __init__(self, argv, env=None):
        self.dir = tempfile.TemporaryDirectory()
        path = os.path.join(self.dir.name, "port")
        self.log = open(os.path.join(self.dir.name, "log"), "w+")
        self.proc = subprocess.Popen([a.replace("{port_file}", path) for a in argv], stdin=subprocess.DEVNULL,
                                     stdout=self.log, stderr=subprocess.STDOUT, env=env)
        end = time.monotonic() + PATIENCE
        while True:
            try:
                with open(path) as f:
                    self.port = int(f.read())
                break
            except (OSError, ValueError):
                pass
            if self.proc.poll() is not None or time.monotonic() > end:
                text = self.text()
                self.log.close()
                self.dir.cleanup()
                raise RuntimeError("server did not start:\n" + text)
            time.sleep(0.01)

    def text(self):
        self.log.flush()
        with open(self.log.name, errors="replace") as f:
            return f.read()

    def signal(self, n=signal.SIGTERM):
        self.proc.send_signal(n)

    def wait(self):
        return self.proc.wait(PATIENCE)

    def close(self):
        """Stops it; a crash or a sanitizer's report is an error."""
        if self.proc.poll() is None:
            self.signal()
        try:
            code = self.wait()
        except subprocess.TimeoutExpired:
            self.proc.kill()
            code = "did not stop"
        text = self.text()
        self.log.close()
        self.dir.cleanup()
        if code != 0:
            sys.stderr.write(text[-8000:])
            raise AssertionError("server ended with %s" % code)

    def connect(self, rcvbuf=None):
        return Conn(self.port, rcvbuf)

    # One request on a connection of its own.
    def ask(self, method, path, body=None, headers=None):
        c = self.connect()
        try:
            c.request(method, path, body, headers)
            return c.reply()
        finally:
            c.close()

    def post(self, path, body, headers=None):
        return self.ask("POST", path, body, headers)

    def metrics(self):
        out = {}
        for line in self.ask("GET", "/metrics").text().splitlines():
            if line and line[0] != "#":
                name, value = line.rsplit(" ", 1)
                out[name] = float(value)
        return out

    def until(self, what, **want):
        """Polls /metrics until these hold; how long it took, in seconds."""
        begin = time.monotonic()
        while True:
            m = self.metrics()
            got = {k: m["weft_" + k] for k in want}
            if got == want:
                return time.monotonic() - begin
            if time.monotonic() - begin > PATIENCE:
                raise AssertionError("%s: %s, expected %s\n%s" % (what, got, want, self.text()[-3000:]))


    def at_least(self, name, value):
        end = time.monotonic() + PATIENCE
        while (now := self.metrics()[name]) < value:
            if time.monotonic() > end:
                raise AssertionError("%s: %g, and not %g after %d s\n%s"
                                     % (name, now, value, PATIENCE, self.text()[-3000:]))

    def records(self, event):
        """The log's JSON lines of this event."""
        lines = (json.loads(line) for line in self.text().splitlines() if line.startswith("{"))
        return [r for r in lines if r.get("event") == event]


class Reply:
    def __init__(self, status, reason, headers, body):
        self.status, self.reason, self.headers, self.body = status, reason, headers, body

    def text(self):
        return self.body.decode()

    def json(self):
        return json.loads(self.body)

    def error(self):
        return self.json()["error"]

    def events(self):
        """The objects of a stream; the last must be [DONE]."""
        parts = self.text().split("\n\n")
        assert parts[-1] == "" and parts[-2] == "data: [DONE]", parts[-3:]
        return [json.loads(p[len("data: "):]) for p in parts[:-2]]


class Gone(Exception):
    """The server closed before a reply was complete."""


class Conn:
    """port: a number, or the path of a socket."""

    def __init__(self, port, rcvbuf=None):
        path = isinstance(port, str)
        self.s = socket.socket(socket.AF_UNIX if path else socket.AF_INET)
        if rcvbuf:
            self.s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, rcvbuf)
        self.s.settimeout(PATIENCE)
        self.s.connect(port if path else ("127.0.0.1", port))
        if not path:
            self.s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.buf = b""

    def close(self):
        self.s.close()

    def reset(self):
        """Closes with RST instead of FIN."""
        self.s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.s.close()

    def half_close(self):
        self.s.shutdown(socket.SHUT_WR)

    def send(self, data):
        self.s.sendall(data.encode() if isinstance(data, str) else data)

    def request(self, method, path, body=None, headers=None):
        self.send(request(method, path, body, headers))

    def more(self):
        try:
            data = self.s.recv(65536)
        except ConnectionResetError:
            data = b""
        if not data:
            raise Gone
        self.buf += data

    def until(self, mark):
        while mark not in self.buf:
            self.more()
        at = self.buf.index(mark) + len(mark)
        out, self.buf = self.buf[:at], self.buf[at:]
        return out

    def exactly(self, n):
        while len(self.buf) < n:
            self.more()
        out, self.buf = self.buf[:n], self.buf[n:]
        return out

    def head(self):
        lines = self.until(b"\r\n\r\n").decode("latin-1").split("\r\n")
        version, status, reason = lines[0].split(" ", 2)
        assert version == "HTTP/1.1", lines[0]
        headers = {}
        for line in lines[1:-2]:
            name, value = line.split(": ", 1)
            assert name.lower() not in headers, name
            headers[name.lower()] = value
        return int(status), reason, headers

    def reply(self, head_only=False):
        status, reason, headers = self.head()
        body = b""
        if head_only or status == 100:
            pass
        elif headers.get("transfer-encoding") == "chunked":
            while True:
                n = int(self.until(b"\r\n"), 16)
                body += self.exactly(n)
                assert self.exactly(2) == b"\r\n"
                if n == 0:
                    break
        elif "content-length" in headers:
            body = self.exactly(int(headers["content-length"]))
        else:
            body = self.rest()
        return Reply(status, reason, headers, body)

    def rest(self):
        """Everything until the server closes."""
        try:
            while True:
                self.more()
        except Gone:
            out, self.buf = self.buf, b""
            return out

    def closed(self):
        """True when the server closes without another byte."""
        return self.rest() == b""


def request(method, path, body=None, headers=None):
    if isinstance(body, (dict, list)):
        body = json.dumps(body)
    if isinstance(body, str):
        body = body.encode()
    fields = {"Host": "localhost"}
    if body is not None:
        fields.update({"Content-Type": "application/json", "Content-Length": len(body)})
    fields.update(headers or {})
    out = "%s %s HTTP/1.1\r\n" % (method, path) + "".join("%s: %s\r\n" % kv for kv in fields.items())
    return out.encode() + b"\r\n" + (body or b"")


# ---- before the stub engine: the test's first two arguments are stub_server and a tokenizer.json ----

CHAT, COMPLETIONS = "/v1/chat/completions", "/v1/completions"


def stub(env=None, **opts):
    return Server(sys.argv[1:3] + ["{port_file}"] + ["%s=%s" % kv for kv in opts.items()], env=env)


def user(text, **more):
    return dict({"messages": [{"role": "user", "content": text}]}, **more)


class SharedStub(unittest.TestCase):
    """Tests that need no options of their own share one server."""

    @classmethod
    def setUpClass(cls):
        cls.s = stub()

    @classmethod
    def tearDownClass(cls):
        cls.s.close()
