"""Images in every API, before an engine that says which rows it was given and a tower that reads "PIC 2x3 words#junk".
Run as: test_images.py STUB_SERVER TOKENIZER.JSON"""
import base64
import hashlib
import http.server
import os
import re
import socket
import sys
import tempfile
import threading
import unittest

from serverkit import CHAT, stub

MESSAGES, RESPONSES = "/v1/messages", "/v1/responses"
TEMPLATE = """{% for m in messages %}{{ m.role[0] }}:{% if m.content is string %}{{ m.content }}{% else %}{% for p in m.content %}\
{% if p.type == 'image' %}<|vision_start|><|image_pad|><|vision_end|>{% else %}{{ p.text }}{% endif %}{% endfor %}{% endif %};\
{% endfor %}{% if add_generation_prompt %}a:{% endif %}"""


def b64(picture):
    return base64.b64encode(picture.encode()).decode()


def url(picture):
    return "data:image/png;base64," + b64(picture)


def digest(picture):
    return hashlib.sha256(picture.split("#")[0].encode()).hexdigest()[:8]


def part(picture):
    return {"type": "image_url", "image_url": {"url": url(picture), "detail": "high"}}


def ask(*parts):
    """A message of the user: text, and images as "PIC ..."."""
    return {"role": "user", "content": [part(p) if p.startswith("PIC") else {"type": "text", "text": p} for p in parts]}


class Talk:
    def said(self, *messages, **more):
        r = self.s.post(CHAT, dict({"messages": list(messages)}, **more))
        self.assertEqual(r.status, 200, r.text())
        return r.json()["choices"][0]["message"]["content"], r.json()["usage"]["prompt_tokens"]

    def rows(self, text):
        """[(at, n, digest, from)] of what the engine was given, the prompt's length, images read so far."""
        return ([(int(a), int(n), d, int(f)) for a, n, d, f in re.findall(r"(\d+)\+(\d+):([0-9a-f]+)\.(\d+)", text)],
                int(re.search(r"of (\d+),", text)[1]), int(re.search(r"(\d+) read", text)[1]))


class Images(Talk, unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.file = tempfile.NamedTemporaryFile("w", suffix=".jinja")
        cls.file.write(TEMPLATE)
        cls.file.flush()
        cls.s = stub(sight=1, template=cls.file.name)

    @classmethod
    def tearDownClass(cls):
        cls.s.close()
        cls.file.close()

    def test_pixels_of_all(self):
        """Images of a request have a bound of pixels together, the same when they are kept as when they are new."""
        pics = ["PIC 1x1 huge %d %s#" % (i, os.urandom(4).hex()) for i in range(11)]
        for _ in range(2):
            for n in (10, 11):
                r = self.s.post(CHAT, {"messages": [ask("say rows", *pics[:n])], "max_tokens": 1})
                self.assertEqual((r.status, n == 10 or r.error()["code"]), (200, True) if n == 10 else (400, "too_many_images"), r.text())

    def test_rows(self):
        text, usage = self.said(ask("say rows", "PIC 2x3 red"))
        rows, n, _ = self.rows(text)
        at = rows[0][0]
        self.assertEqual(rows, [(at, 3, digest("PIC 2x3 red"), 0), (at + 4, 3, digest("PIC 2x3 red"), 3)])
        self.assertEqual(n, usage)
        bare, _ = self.said(ask("say rows", "PIC 1x1 red"))
        self.assertEqual(n, self.rows(bare)[1] + 6)

    def test_told(self):
        self.assertIn("vision", self.s.post("/api/show", {"model": "stub"}).json()["capabilities"])
        self.assertTrue(self.s.ask("GET", "/props").json()["modalities"]["vision"])

    def test_order(self):
        """Of the prompt, over messages, whatever the encoding; a message without images stays text."""
        text, _ = self.said(ask("PIC 1x2 a", "say rows", "PIC 1x3 b#one"), {"role": "assistant", "content": "hm"},
                            {"role": "user", "content": "and?"}, ask("PIC 1x3 b#two", "PIC 1x2 a"))
        rows = self.rows(text)[0]
        self.assertEqual([(n, d) for _, n, d, _ in rows], [(2, digest("PIC 1x2 a")), (3, digest("PIC 1x3 b")),
                                                           (3, digest("PIC 1x3 b")), (2, digest("PIC 1x2 a"))])
        self.assertEqual([r[0] for r in rows], sorted(r[0] for r in rows))

    def test_apis(self):
        """The same rows by every way in, and the same count of tokens."""
        pic = "PIC 2x2 apis"
        want, n = self.said(ask("say rows", pic))
        want = self.rows(want)[:2]
        anthropic = {"max_tokens": 100, "messages": [{"role": "user", "content": [
            {"type": "text", "text": "say rows"},
            {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": b64(pic)}}]}]}
        responses = {"input": [{"role": "user", "content": [{"type": "input_text", "text": "say rows"},
                                                            {"type": "input_image", "image_url": url(pic), "detail": "auto"}]}]}
        r = self.s.post(MESSAGES, anthropic)
        self.assertEqual(r.status, 200, r.text())
        self.assertEqual(self.rows(r.json()["content"][0]["text"])[:2], want)
        self.assertEqual(r.json()["usage"]["input_tokens"] + r.json()["usage"].get("cache_read_input_tokens", 0), n)
        del anthropic["max_tokens"]
        self.assertEqual(self.s.post(MESSAGES + "/count_tokens", anthropic).json()["input_tokens"], n)
        r = self.s.post(RESPONSES, responses)
        self.assertEqual(r.status, 200, r.text())
        self.assertEqual(self.rows(r.json()["output"][0]["content"][0]["text"])[:2], want)
        self.assertEqual(r.json()["usage"]["input_tokens"], n)
        self.assertEqual(self.s.post(RESPONSES + "/input_tokens", responses).json()["input_tokens"], n)
        chat = {"messages": [{"role": "user", "content": "say rows", "images": [b64(pic)]}], "stream": False}
        r = self.s.post("/api/chat", chat).json()
        self.assertEqual(self.rows(r["message"]["content"])[:2], want, r)
        r = self.s.post("/api/generate", {"prompt": "say rows", "images": [b64(pic)], "stream": False}).json()
        self.assertEqual(self.rows(r["response"])[:2], want, r)

    def test_tool_results(self):
        """Agents' tools bring pictures."""
        r = self.s.post(MESSAGES, {"max_tokens": 100, "messages": [
            {"role": "user", "content": "say rows"},
            {"role": "assistant", "content": [{"type": "tool_use", "id": "t", "name": "see", "input": {}}]},
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t", "content": [
                {"type": "text", "text": "here"},
                {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": b64("PIC 1x4 tool")}}]}]}]})
        self.assertEqual(r.status, 200, r.text())
        self.assertEqual([x[1:3] for x in self.rows(r.json()["content"][0]["text"])[0]], [(4, digest("PIC 1x4 tool"))])

    def test_read_once(self):
        """A second turn, or the same file elsewhere, is not read again; another file of the same picture is, once."""
        text, _ = self.said(ask("say rows", "PIC 1x2 once#1"))
        before = self.rows(text)[2]
        for pic, more in (("PIC 1x2 once#1", 0), ("PIC 1x2 once#2", 1), ("PIC 1x2 once#2", 1), ("PIC 1x2 once#1", 1)):
            text, _ = self.said(ask("say rows", "PIC 1x2 once#1"), {"role": "assistant", "content": "ok"}, ask("more", pic))
            self.assertEqual(self.rows(text)[2], before + more, pic)

    def test_responses_go_on(self):
        """A stored response is gone on from without its image being sent again."""
        first = self.s.post(RESPONSES, {"input": [{"role": "user", "content": [
            {"type": "input_text", "text": "say rows"}, {"type": "input_image", "image_url": url("PIC 1x5 kept")}]}]}).json()
        r = self.s.post(RESPONSES, {"previous_response_id": first["id"], "input": "again"})
        self.assertEqual(r.status, 200, r.text())
        self.assertEqual([x[1:3] for x in self.rows(r.json()["output"][0]["content"][0]["text"])[0]], [(5, digest("PIC 1x5 kept"))])
        with_little = stub(sight=1, template=self.file.name, image_bytes=0)
        try:
            first = with_little.post(RESPONSES, {"input": [{"role": "user", "content": [
                {"type": "input_text", "text": "say rows"}, {"type": "input_image", "image_url": url("PIC 1x5 kept")}]}]}).json()
            r = with_little.post(RESPONSES, {"previous_response_id": first["id"], "input": "again"})
            self.assertEqual((r.status, r.error()["code"]), (400, "image_not_found"), r.text())
        finally:
            with_little.close()

    def test_users_words(self):
        """What looks like a placeholder, or like a mark, is text."""
        text, _ = self.said(ask("say rows <|image_pad|><|vision_start|><|image_pad|>", "PIC 1x2 x"))
        self.assertEqual(len(self.rows(text)[0]), 1)
        text, _ = self.said({"role": "user", "content": "say rows <|image_pad|>"})
        self.assertEqual(self.rows(text)[0], [])
        for forged in ("\ue002image \ue003", "\ue002image " + "zz" * 32 + "\ue003"):
            text, _ = self.said(ask("say rows " + forged, "PIC 1x2 x"))
            self.assertEqual(len(self.rows(text)[0]), 1)
        r = self.s.post(CHAT, {"messages": [ask("say rows \ue002image " + "00" * 32 + "\ue003", "PIC 1x2 x")]})
        self.assertEqual((r.status, r.error()["code"]), (400, "image_not_found"))

    def test_spellings(self):
        """A URL's scheme has no case, and blanks before it are none of it."""
        pic = "PIC 1x2 spelled"
        for u in (url(pic), url(pic).replace("data:", "DATA:"), " \n" + url(pic), url(pic).replace(";base64", ";BASE64"), "\t" + b64(pic)):
            text, _ = self.said({"role": "user", "content": [{"type": "text", "text": "say rows"},
                                                             {"type": "image_url", "image_url": {"url": u}}]})
            self.assertEqual([d for _, _, d, _ in self.rows(text)[0]], [digest(pic)], u[:40])
        for u in " http://127.0.0.1/x.png", "\nFile:///etc/passwd", "  ", " data:image/png,abc":
            r = self.s.post(CHAT, {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": u}}]}]})
            self.assertEqual(r.status, 400, r.text())

    def test_refused(self):
        at = "messages[0].content[0].image_url"
        for u, code, words in (("http://127.0.0.1/x.png", "unsupported_content", "fetches nothing"),
                               ("https://x/y.png", "unsupported_content", '"https"'),
                               ("file:///etc/passwd", "unsupported_content", '"file"'),
                               ("FILE:///etc/passwd", "unsupported_content", "opens nothing"),
                               ("data:image/png,abc", "invalid_value", "base64"), ("data:", "invalid_value", "base64"),
                               ("data:image/png;base64,a*b", "invalid_value", "not base64"), ("", "invalid_value", "not base64"),
                               ("A", "invalid_value", "not base64"),
                               (url("zork"), "invalid_image", "this is no image"),
                               (url("PIC 40x40 large"), "image_too_large", "1000 are the most")):
            with self.subTest(url=u):
                r = self.s.post(CHAT, {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": u}]}]})
                self.assertEqual((r.status, r.error()["code"], r.error()["param"]), (400, code, at), r.text())
                self.assertIn(words, r.error()["message"])
        for content in ({"type": "image_url"}, {"type": "image_url", "image_url": {"url": 5}}, {"type": "image", "image": []}):
            r = self.s.post(CHAT, {"messages": [{"role": "user", "content": [content]}]})
            self.assertEqual(r.status, 400, r.text())
        r = self.s.post(CHAT, {"messages": [{"role": "system", "content": [part("PIC 1x1 x")]}, ask("x")]})
        self.assertEqual((r.status, r.error()["param"]), (400, "messages[0].content[0].image_url"), r.text())
        r = self.s.post(CHAT, {"messages": [ask(*["PIC 1x1 x"] * 65)]})
        self.assertEqual((r.status, r.error()["code"]), (400, "too_many_images"), r.text())
        r = self.s.post(RESPONSES, {"input": [{"role": "user", "content": [{"type": "input_image", "file_id": "f"}]}]})
        self.assertEqual((r.status, r.error()["param"]), (400, "input[0].content[0].image_url"), r.text())

    def test_videos(self):
        """No API reads videos: a part of that kind is refused by its name, also in what tools bring, and a film is no image."""
        film = base64.b64encode(b"\0\0\0\x20ftypisom" + bytes(20)).decode()
        link = "data:video/mp4;base64," + film
        source = {"type": "base64", "media_type": "video/mp4", "data": film}

        def chat(content):
            return CHAT, {"messages": [{"role": "user", "content": [content]}]}, "messages[0].content[0]"

        def responses(content):
            return RESPONSES, {"input": [{"role": "user", "content": [content]}]}, "input[0].content[0]"

        def messages(content):
            return MESSAGES, {"max_tokens": 5, "messages": [{"role": "user", "content": [content]}]}, "messages[0].content[0]"
        tool = {"type": "tool_result", "tool_use_id": "t", "content": [{"type": "video", "source": source}]}
        for path, body, at in (chat({"type": "video_url", "video_url": {"url": link}}), chat({"type": "video", "video": [url("PIC 1x1 frame")]}),
                               chat({"type": "input_video", "input_video": {"data": film}}),
                               responses({"type": "input_video", "video_url": link}), messages({"type": "video", "source": source}),
                               (MESSAGES + "/count_tokens", {"messages": [{"role": "user", "content": [{"type": "video", "source": source}]}]},
                                "messages[0].content[0]"),
                               (MESSAGES, {"max_tokens": 5, "messages": [
                                   {"role": "user", "content": "x"},
                                   {"role": "assistant", "content": [{"type": "tool_use", "id": "t", "name": "see", "input": {}}]},
                                   {"role": "user", "content": [tool]}]}, "messages[2].content[0].content[0]"),
                               (RESPONSES + "/input_tokens", {"input": [{"role": "user", "content": [{"type": "input_video", "video_url": link}]}]},
                                "input[0].content[0]")):
            with self.subTest(path=path, body=body):
                r = self.s.post(path, body)
                self.assertEqual(r.status, 400, r.text())
                self.assertIn(at + '.type is "', r.error()["message"])
                self.assertRegex(r.error()["message"], '"(input_)?video(_url)?": this server reads')
        for path, body in (chat({"type": "image_url", "image_url": link})[:2], responses({"type": "input_image", "image_url": link})[:2],
                           messages({"type": "image", "source": source})[:2]):
            with self.subTest(path=path, as_image=True):
                r = self.s.post(path, body)
                self.assertEqual(r.status, 400, r.text())
                self.assertIn("this is no image", r.error()["message"])
        for path, body in (("/api/chat", {"messages": [{"role": "user", "content": "x", "images": [film]}]}),
                           ("/api/generate", {"prompt": "x", "images": [film]})):
            with self.subTest(path=path):
                r = self.s.post(path, body)
                self.assertEqual(r.status, 400, r.text())
                self.assertIn("this is no image", r.json()["error"])

    def test_files(self):
        """Files below a folder that the server was started with, and of nowhere else."""
        with tempfile.TemporaryDirectory() as top:
            inside, outside = os.path.join(top, "pics"), os.path.join(top, "pics-not")
            os.makedirs(os.path.join(inside, "sub", "deep"))
            os.mkdir(outside)
            for path in ("pics/a.png", "pics/sub/deep/b c.png", "pics-not/secret"):
                with open(os.path.join(top, path), "w") as f:
                    f.write("PIC 1x3 " + path)
            with open(os.path.join(inside, "large"), "w") as f:
                f.truncate((64 << 20) + 1)
            with open(os.path.join(inside, "text"), "w") as f:
                f.write("zork")
            open(os.path.join(inside, "empty"), "w").close()
            os.symlink(os.path.join(outside, "secret"), os.path.join(inside, "link"))
            os.symlink("a.png", os.path.join(inside, "near"))
            os.symlink(outside, os.path.join(inside, "way"))
            os.symlink(inside, os.path.join(top, "also"))
            os.mkfifo(os.path.join(inside, "pipe"))
            sock = socket.socket(socket.AF_UNIX)
            sock.bind(os.path.join(inside, "sock"))
            s = stub(sight=1, template=self.file.name, image_folder=os.path.join(top, "also"))

            def asked(u):
                return s.post(CHAT, {"messages": [{"role": "user", "content": [
                    {"type": "image_url", "image_url": {"url": u}}, {"type": "text", "text": "say rows"}]}]})
            try:
                for u, pic in (("file://" + inside + "/a.png", "a.png"), ("file:" + inside + "/a.png", "a.png"),
                               ("FILE://localhost" + inside + "/a.png", "a.png"), ("file://" + top + "/also//./a.png", "a.png"),
                               ("file://" + inside + "/sub/deep/b%20c.png", "sub/deep/b c.png"),
                               ("file://" + inside + "%2fsub%2Fdeep/b c.png", "sub/deep/b c.png")):
                    with self.subTest(url=u):
                        r = asked(u)
                        self.assertEqual(r.status, 200, r.text())
                        rows = self.rows(r.json()["choices"][0]["message"]["content"])[0]
                        self.assertEqual([x[1:3] for x in rows], [(3, digest("PIC 1x3 pics/" + pic))])
                not_below, wrong = ("unsupported_content", "not below a folder"), ("unsupported_content", "absolute path")
                for u, (code, words) in ((outside + "/secret", not_below), ("/etc/passwd", not_below), ("/etc/none", not_below),
                                         (inside, not_below), (top + "/pic", not_below), (inside + "/../pics-not/secret", not_below),
                                         (inside + "/sub/%2e%2e/a.png", not_below), (inside + "/..", not_below),
                                         (inside + "/sub/..%2f..%2fpics-not/secret", not_below),
                                         (inside + "/link", ("invalid_image", "no regular file")),
                                         (inside + "/near", ("invalid_image", "no regular file")),
                                         (inside + "/way/secret", ("invalid_image", "links are not followed")),
                                         (inside + "/a.png/x", ("invalid_image", "links are not followed")),
                                         (inside + "/pipe", ("invalid_image", "no regular file")),
                                         (inside + "/sock", ("invalid_image", "no regular file")),
                                         (inside + "/sub", ("invalid_image", "no regular file")),
                                         (inside + "/sub/", ("invalid_image", "no regular file")),
                                         (inside + "/", ("invalid_image", "no regular file")),
                                         (inside + "/.", ("invalid_image", "no regular file")),
                                         (inside + "/none", ("invalid_image", "No such file")),
                                         (inside + "/none/x", ("invalid_image", "No such file")),
                                         (inside + "/" + "n" * 300, ("invalid_image", "too long")),
                                         (inside + "/large", ("image_too_large", "67108865 bytes")),
                                         (inside + "/text", ("invalid_image", "this is no image")),
                                         (inside + "/empty", ("invalid_image", "this is no image")),
                                         (inside + "/a.png%00", ("unsupported_content", "zero byte")),
                                         (inside + "/a.png%2", ("unsupported_content", "hexadecimal")),
                                         (inside + "/a.png%", ("unsupported_content", "hexadecimal")),
                                         (inside + "/%zz", ("unsupported_content", "hexadecimal")),
                                         ("/" + "x" * 5000, ("unsupported_content", "more than")),
                                         ("host" + inside + "/a.png", wrong), ("", wrong), ("/", not_below),
                                         ("//" + inside + "/a.png", wrong), ("a.png", wrong)):
                    with self.subTest(path=u[:200]):
                        r = asked("file://" + u)
                        self.assertEqual((r.status, r.error()["code"]), (400, code), r.text())
                        self.assertIn(words, r.error()["message"])
                for u in "http://127.0.0.1/a.png", "https://127.0.0.1/a.png":
                    r = asked(u)
                    self.assertEqual((r.status, r.error()["code"]), (400, "unsupported_content"), r.text())
                # Names that change while they are read lead nowhere else.
                name, stop = os.path.join(inside, "turning"), threading.Event()

                def turn():
                    while not stop.is_set():
                        for to in "../pics-not", "sub/deep":
                            os.symlink(to, name + "~")
                            os.rename(name + "~", name)
                        os.unlink(name)
                        os.mkdir(name)
                        os.rmdir(name)
                t = threading.Thread(target=turn)
                t.start()
                for _ in range(100):
                    r = asked("file://" + name + "/secret")
                    self.assertEqual((r.status, r.error()["code"]), (400, "invalid_image"), r.text())
                stop.set()
                t.join()
                self.assertEqual(asked("file://" + inside + "/a.png").status, 200)
            finally:
                s.close()
                sock.close()

    def test_hosts(self):
        """Pictures of hosts that the server was started with, and of no other; nothing else is connected to."""
        class Host(http.server.BaseHTTPRequestHandler):
            asked = []

            def do_GET(self):
                self.asked.append(self.path)
                if self.path == "/hang":
                    waiting.set()
                    if not self.connection.recv(1):
                        left.set()
                    return
                status = {"/gone": 404, "/moved": 302}.get(self.path, 200)
                self.send_response(status)
                if status == 302:
                    self.send_header("Location", "http://127.0.0.1:%d/b.png" % other.server_port)
                self.end_headers()
                try:
                    if self.path == "/endless":
                        for _ in range(80):
                            self.wfile.write(b"x" * (1 << 20))
                    elif self.path != "/empty":
                        self.wfile.write(b"PIC 1x3 " + self.path.encode() if self.path != "/text" else b"zork")
                except OSError:
                    pass

            def log_message(self, *_):
                pass

        class Other(Host):
            asked = []
        waiting, left = threading.Event(), threading.Event()
        host, other = (http.server.ThreadingHTTPServer(("127.0.0.1", 0), h) for h in (Host, Other))
        for h in host, other:
            h.daemon_threads = True
            threading.Thread(target=h.serve_forever, daemon=True).start()
        base, aside = ("http://127.0.0.1:%d" % h.server_port for h in (host, other))
        s = stub(sight=1, template=self.file.name, image_host="127.0.0.1:%d" % host.server_port)

        def asked(u):
            return s.post(CHAT, {"messages": [{"role": "user", "content": [
                {"type": "image_url", "image_url": {"url": u}}, {"type": "text", "text": "say rows"}]}]})
        try:
            for u in base + "/a.png", base.upper() + "/a.png", base + "/a.png#part":
                with self.subTest(url=u):
                    r = asked(u)
                    self.assertEqual(r.status, 200, r.text())
                    rows = self.rows(r.json()["choices"][0]["message"]["content"])[0]
                    self.assertEqual([x[1:3] for x in rows], [(3, digest("PIC 1x3 /a.png"))])
            r = s.post(MESSAGES, {"max_tokens": 100, "messages": [{"role": "user", "content": [
                {"type": "text", "text": "say rows"}, {"type": "image", "source": {"type": "url", "url": base + "/a.png"}}]}]})
            self.assertEqual(r.status, 200, r.text())
            r = s.post(RESPONSES, {"input": [{"role": "user", "content": [
                {"type": "input_text", "text": "say rows"}, {"type": "input_image", "image_url": base + "/a.png"}]}]})
            self.assertEqual(r.status, 200, r.text())
            not_listed = ("unsupported_content", "does not list")
            port = base.rsplit(":", 1)[1]
            for u, (code, words) in ((aside + "/b.png", not_listed), ("http://127.0.0.1/b.png", not_listed),
                                     ("https://127.0.0.1/b.png", not_listed), ("http://localhost:" + port + "/a.png", not_listed),
                                     ("http://127.0.0.1.:" + port + "/a.png", not_listed),
                                     ("http://127.0.0.1:" + port + "@127.0.0.1:%d/b.png" % other.server_port,
                                      ("unsupported_content", "password")),
                                     ("http://me@127.0.0.1:" + port + "/a.png", ("unsupported_content", "password")),
                                     ("http://", ("unsupported_content", "no URL")),
                                     ("http://127.0.0.1:x/", ("unsupported_content", "no URL")),
                                     (base + "/" + "x" * 9000, ("unsupported_content", "are the most")),
                                     (base + "/\0", ("unsupported_content", "zero byte")),
                                     (base + "/moved", ("invalid_image", "redirects are not followed")),
                                     (base + "/gone", ("invalid_image", "status 404")),
                                     (base + "/text", ("invalid_image", "this is no image")),
                                     (base + "/empty", ("invalid_image", "this is no image")),
                                     (base + "/endless", ("image_too_large", "more than"))):
                with self.subTest(url=u[:200]):
                    r = asked(u)
                    self.assertEqual((r.status, r.error()["code"]), (400, code), r.text())
                    self.assertIn(words, r.error()["message"])
            self.assertEqual(Other.asked, [])
            # For whoever leaves nothing is fetched any longer: the host, which gives no answer, sees the connection end.
            c = s.connect()
            c.request("POST", CHAT, {"messages": [{"role": "user", "content": [
                {"type": "image_url", "image_url": {"url": base + "/hang"}}]}]})
            self.assertTrue(waiting.wait(60))
            c.close()
            self.assertTrue(left.wait(30))
            self.assertEqual(asked(base + "/a.png").status, 200)
            host.shutdown()
            host.server_close()
            r = asked(base + "/a.png")
            self.assertEqual((r.status, r.error()["code"]), (400, "invalid_image"), r.text())
        finally:
            s.close()
            other.shutdown()
            other.server_close()

    def test_blind(self):
        """A model without a tower, and a template that shows no images."""
        s = stub()
        try:
            r = s.post(CHAT, {"messages": [ask("x", "PIC 1x1 x")]})
            self.assertEqual((r.status, r.error()["code"]), (400, "unsupported_content"), r.text())
            self.assertIn("reads text only", r.error()["message"])
        finally:
            s.close()
        s = stub(sight=1)
        try:
            r = s.post(CHAT, {"messages": [ask("x", "PIC 1x1 x")]})
            self.assertEqual((r.status, r.error()["code"]), (400, "template_error"), r.text())
            self.assertIn("0 of 1 images", r.error()["message"])
        finally:
            s.close()


SOUND_TEMPLATE = TEMPLATE.replace("{% else %}{{ p.text }}", "{% elif p.type == 'audio' %}<|video_pad|>{% else %}{{ p.text }}")


def hum(sound):
    return {"type": "input_audio", "input_audio": {"data": b64(sound), "format": "wav"}}


class Sounds(Talk, unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.file = tempfile.NamedTemporaryFile("w", suffix=".jinja")
        cls.file.write(SOUND_TEMPLATE)
        cls.file.flush()
        cls.s = stub(sight=1, template=cls.file.name)

    @classmethod
    def tearDownClass(cls):
        cls.s.close()
        cls.file.close()

    def test_shapes(self):
        """Every way in which clients send a sound gives the same rows."""
        sound = "HUM 1x3 shapes"
        link = "data:audio/wav;base64," + b64(sound)
        parts = [hum(sound), {"type": "input_audio", "input_audio": {"data": link}}, {"type": "input_audio", "input_audio": link},
                 {"type": "audio_url", "audio_url": {"url": link}}, {"type": "audio_url", "audio_url": link},
                 {"type": "audio", "audio": link}, {"type": "audio", "audio": b64(sound)}, {"type": "audio", "url": link},
                 {"type": "audio", "audio": {"url": link}}, {"inline_data": {"mime_type": "audio/wav", "data": b64(sound)}},
                 {"inlineData": {"mimeType": "audio/wav", "data": b64(sound)}}]
        want = None
        for p in parts:
            with self.subTest(part=p):
                text, n = self.said({"role": "user", "content": [{"type": "text", "text": "say rows"}, p]})
                rows = self.rows(text)[0]
                self.assertEqual([(k, d) for _, k, d, _ in rows], [(3, digest(sound))])
                want = want or (rows, n)
                self.assertEqual((rows, n), want)
        r = self.s.post(RESPONSES, {"input": [{"role": "user", "content": [{"type": "input_text", "text": "say rows"}, hum(sound)]}]})
        self.assertEqual(r.status, 200, r.text())
        self.assertEqual(self.rows(r.json()["output"][0]["content"][0]["text"])[0], want[0])

    def test_both(self):
        """Images and sounds in the order of the prompt; each is what it came as, whatever is kept of its bytes."""
        says = {"type": "text", "text": "say rows"}
        text, _ = self.said({"role": "user", "content": [hum("HUM 1x2 a"), says, part("PIC 1x3 b"), hum("HUM 1x4 c")]},
                            {"role": "assistant", "content": "hm"}, {"role": "user", "content": [part("PIC 1x5 d"), hum("HUM 1x2 a")]})
        rows = self.rows(text)[0]
        self.assertEqual([(n, d) for _, n, d, _ in rows], [
            (2, digest("HUM 1x2 a")), (3, digest("PIC 1x3 b")), (4, digest("HUM 1x4 c")), (5, digest("PIC 1x5 d")),
            (2, digest("HUM 1x2 a"))])
        again = [self.rows(self.said({"role": "user", "content": [says, hum("HUM 1x2 a")]})[0])[2] for _ in range(2)]
        self.assertEqual(again[0], again[1], "a sound that is kept is not decoded again")
        for bad in (hum("PIC 1x3 b"), part("HUM 1x2 a")):
            r = self.s.post(CHAT, {"messages": [{"role": "user", "content": [bad]}]})
            self.assertEqual((r.status, r.error()["code"]), (400, "invalid_sound" if "input_audio" in bad else "invalid_image"), r.text())

    def test_refused(self):
        at = "messages[0].content[0].input_audio"
        for value, code, param in (({"data": b64("zork")}, "invalid_sound", ".data"), ({"data": "a*b"}, "invalid_value", ".data"),
                                   ({"data": b64("HUM 40x40 long")}, "sound_too_large", ".data"), ({}, "invalid_type", ".url"),
                                   ({"url": "http://127.0.0.1/x.wav"}, "unsupported_content", ".url"), (5, "invalid_type", ""),
                                   ({"data": 5}, "invalid_type", ".data")):
            with self.subTest(value=value):
                r = self.s.post(CHAT, {"messages": [{"role": "user", "content": [{"type": "input_audio", "input_audio": value}]}]})
                self.assertEqual((r.status, r.error()["code"], r.error()["param"]), (400, code, at + param), r.text())
        r = self.s.post(CHAT, {"messages": [{"role": "system", "content": [hum("HUM 1x1 x")]}, ask("x")]})
        self.assertEqual((r.status, r.error()["param"]), (400, at + ".data"), r.text())

    def test_told(self):
        self.assertEqual(self.s.ask("GET", "/props").json()["modalities"], {"vision": True, "audio": True})
        self.assertIn("audio", self.s.post("/api/show", {"model": "stub"}).json()["capabilities"])


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0]] + sys.argv[3:])
