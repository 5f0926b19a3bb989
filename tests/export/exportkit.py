"""What the tests of `weft quantize` share: a count of what failed, how the program is run, and a reader of GGUF files."""
import collections, os, struct, subprocess, sys

weft, models, shared = os.path.abspath(sys.argv[1]), sys.argv[2], sys.argv[3]
failures = []


def check(ok, what):
    if not ok:
        print("FAIL", what)
        failures.append(what)


def run(*args, **more):
    p = subprocess.run([weft, *args], capture_output=True, text=True, timeout=250, **more)
    return p.returncode, p.stdout, p.stderr


class Gguf:
    """Pairs, and tensors as (shape, type, bytes): read apart from weft's own reader."""

    BLOCK = {0: (1, 4), 1: (1, 2), 30: (1, 2), 8: (32, 34), 26: (1, 4), 39: (32, 17)}

    def __init__(self, path):
        self.b, self.at = open(path, "rb").read(), 8
        tensors, pairs = self.take("q"), self.take("q")
        self.pairs = {}
        for _ in range(pairs):
            key = self.text()
            self.pairs[key] = self.value(self.take("i"))
        infos = []
        for _ in range(tensors):
            name, n = self.text(), self.take("I")
            shape = [self.take("q") for _ in range(n)]
            infos.append((name, shape, self.take("i"), self.take("Q")))
        data = (self.at + 31) // 32 * 32
        self.tensors = {name: (shape, kind, self.b[data + at : data + at + self.size(shape, kind)]) for name, shape, kind, at in infos}

    def size(self, shape, kind):
        n = 1
        for d in shape:
            n *= d
        block, size = self.BLOCK[kind]
        return n // block * size

    def take(self, form):
        (v,) = struct.unpack_from("<" + form, self.b, self.at)
        self.at += struct.calcsize("<" + form)
        return v

    def text(self):
        n = self.take("Q")
        self.at += n
        return self.b[self.at - n : self.at].decode()

    def value(self, kind):
        if kind == 8:
            return self.text()
        if kind == 9:
            kind, n = self.take("i"), self.take("Q")
            return [self.value(kind) for _ in range(n)]
        return self.take({10: "Q", 11: "q", 12: "d"}.get(kind) or "BbHhIif?"[kind])


def join_commonest(words, made, most):
    """Joins the commonest neighbours in lists of pieces, again and again, until made[] has `most` pieces; appends to it in order."""
    while len(made) < most:
        pairs = collections.Counter(p for w in words for p in zip(w, w[1:]) if p[0] + p[1] not in made)
        a, b = min(pairs, key=lambda p: (-pairs[p], p))
        made.append(a + b)
        for w in words:
            i = 0
            while i + 1 < len(w):
                if w[i] + w[i + 1] == a + b:
                    w[i : i + 2] = [a + b]
                i += 1
