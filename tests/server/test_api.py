"""The API's surface before a stub engine that says the prompt again: endpoints,
fields, shapes, streams.  Run as: test_api.py STUB_SERVER TOKENIZER.JSON"""
import json
import os
import socket
import sys
import tempfile
import unittest

from serverkit import PATIENCE, Conn, Server

STUB, TOKENIZER = sys.argv[1:3]
CHAT, COMPLETIONS = "/v1/chat/completions", "/v1/completions"


def start(**opts):
    return Server([STUB, TOKENIZER, "{port_file}"] + ["%s=%s" % kv for kv in opts.items()])


def user(text, **more):
    return dict({"messages": [{"role": "user", "content": text}]}, **more)


class Shared(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.s = start()

    @classmethod
    def tearDownClass(cls):
        cls.s.close()

    def tokens(self, text):
        return self.s.post(COMPLETIONS, {"prompt": text, "max_tokens": 1}).json()["usage"]["prompt_tokens"]


class Doors(unittest.TestCase):
    """How a client may come in."""

    def serve(self, **opts):
        s = start(**opts)
        self.addCleanup(s.close)
        return s

    def test_api_key(self):
        s = self.serve(api_key="sesame")
        for headers, status in (({"x-api-key": "sesame"}, 200), ({"x-api-key": "sesam"}, 401), ({"x-api-key": ""}, 401),
                                ({"x-api-key": "wrong", "Authorization": "Bearer sesame"}, 200),
                                ({"x-api-key": "Bearer sesame"}, 401)):
            self.assertEqual(s.ask("GET", "/v1/models", headers=headers).status, status, headers)
        self.assertEqual(s.ask("GET", "/health").status, 200)

    def test_cors(self):
        ask = {"Origin": "http://a.test", "Access-Control-Request-Method": "POST",
               "Access-Control-Request-Headers": "authorization, x-thing"}
        s = self.serve()        # without the option nobody is let in
        r = s.ask("OPTIONS", CHAT, headers=ask)
        self.assertEqual((r.status, r.headers["allow"]), (405, "POST"))
        self.assertFalse([h for h in r.headers if h.startswith("access-control")])
        s = self.serve(cors_origin="http://b.test,http://a.test", api_key="sesame")
        r = s.ask("OPTIONS", CHAT, headers=ask)
        self.assertEqual((r.status, r.body, r.headers["access-control-allow-origin"],
                          r.headers["access-control-allow-headers"]), (200, b"", "http://a.test", "authorization, x-thing"))
        self.assertIn("POST", r.headers["access-control-allow-methods"])
        # Errors can be read, too; other origins, and what is only like one, cannot.
        self.assertEqual(s.post(CHAT, user("x"), {"Origin": "http://b.test"}).headers["access-control-allow-origin"],
                         "http://b.test")
        for origin in ("http://a.test.evil", "http://a", "b.test", ","):
            r = s.ask("OPTIONS", CHAT, headers=dict(ask, Origin=origin))
            self.assertNotIn("access-control-allow-origin", r.headers, origin)
        self.assertNotIn("access-control-allow-origin", s.ask("GET", "/health").headers)
        s = self.serve(cors_origin="*")
        c = s.connect()
        c.request("GET", "/health", headers={"Origin": "http://any.test"})
        self.assertEqual(c.reply().headers["access-control-allow-origin"], "http://any.test")
        c.request("GET", "/health")
        self.assertNotIn("access-control-allow-origin", c.reply().headers)
        c.close()
        r = s.post(COMPLETIONS, {"prompt": "ab", "max_tokens": 1, "stream": True}, {"Origin": "http://any.test"})
        self.assertEqual(r.headers["access-control-allow-origin"], "http://any.test")

    def test_unix_socket(self):
        with tempfile.TemporaryDirectory() as d:
            path = os.path.join(d, "sock")
            dead = socket.socket(socket.AF_UNIX)    # as a server that was killed leaves it
            dead.bind(path)
            dead.close()
            s = start(host="unix:" + path)
            c = Conn.__new__(Conn)
            c.s, c.buf = socket.socket(socket.AF_UNIX), b""
            c.s.settimeout(PATIENCE)
            c.s.connect(path)
            c.request("POST", COMPLETIONS, {"prompt": "ab", "max_tokens": 1})
            self.assertEqual(c.reply().json()["choices"][0]["text"], "ab")
            c.close()
            with self.assertRaises(RuntimeError):   # a living one is not taken over
                start(host="unix:" + path)
            s.close()
            self.assertFalse(os.path.exists(path))

    def test_strict(self):
        s = self.serve(strict=1)
        r = s.post(CHAT, user("x", zork=1, max_tokens=1))
        self.assertEqual((r.status, r.error()["code"]), (400, "unknown_field"))
        self.assertIn("zork", r.error()["message"])
        self.assertEqual(s.post(CHAT, user("x", max_tokens=1)).status, 200)


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0]] + sys.argv[3:])
