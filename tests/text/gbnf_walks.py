"""Random grammars of rules, and expressions: what is let through is what they say.

    gbnf_walks.py GRAMMAR_CLI [COUNT] [SEED]

The oracle tries every way (ends of what a rule may take from a place, kept); texts
are all short ones over two letters, and what walks come to.  Expressions are held
against Python's.
"""
import itertools, json, os, random, re, subprocess, sys


class Gen:
    """A grammar as text, and as trees for the oracle."""

    def __init__(self, seed):
        self.r = random.Random(seed)

    def element(self, depth):
        r = self.r
        kind = r.choice(["text", "text", "class", "rule", "rule", "group", "any"])
        if kind == "text" or (kind == "group" and depth > 2):
            t = "".join(r.choice("ab") for _ in range(r.choice([0, 1, 1, 1, 2])))
            node, text = ("text", t), '"%s"' % t
        elif kind == "class":
            text, chars = r.choice([("[a]", "a"), ("[ab]", "ab"), ("[^a]", "b"), ("[a-b]", "ab"), ("[^ab]", "")])
            node = ("class", chars)
        elif kind == "any":
            node, text = ("class", "ab"), "."
        elif kind == "rule":
            i = r.randrange(self.n)
            node, text = ("rule", i), self.name(i)
        else:
            node, inner = self.alternatives(depth + 1)
            text = "(%s)" % inner
        if r.random() < 0.3:
            lo, hi, mark = r.choice([(0, None, "*"), (1, None, "+"), (0, 1, "?"), (2, 2, "{2}"), (1, 3, "{1,3}"), (2, None, "{2,}")])
            node, text = ("repeat", node, lo, hi), text + mark
        return node, text

    def sequence(self, depth):
        parts = [self.element(depth) for _ in range(self.r.choice([0, 1, 1, 2, 2, 3]))]
        return ("seq", [p[0] for p in parts]), " ".join(p[1] for p in parts)

    def alternatives(self, depth):
        parts = [self.sequence(depth) for _ in range(self.r.choice([1, 1, 2, 3]))]
        return ("alt", [p[0] for p in parts]), " | ".join(p[1] for p in parts)

    def name(self, i):
        return "root" if i == 0 else "r-%d" % i

    def grammar(self):
        self.n = self.r.randrange(1, 5)
        rules = [self.alternatives(0) for _ in range(self.n)]
        return [r[0] for r in rules], "".join("%s ::= %s # rule\n" % (self.name(i), r[1]) for i, r in enumerate(rules))


class Oracle:
    """Which places a rule may end at: the least solution, found by going round until nothing is new."""

    def __init__(self, rules, text):
        self.rules, self.text, self.ends, self.again = rules, text, {}, True
        while self.again:
            self.again = False
            self.run(("rule", 0), 0)
            for key in list(self.ends):
                new = self.run(self.rules[key[0]], key[1])
                if not new <= self.ends[key]:
                    self.ends[key] |= new
                    self.again = True

    def run(self, e, at):
        kind = e[0]
        if kind == "text":
            return {at + len(e[1])} if self.text.startswith(e[1], at) else set()
        if kind == "class":
            return {at + 1} if at < len(self.text) and self.text[at] in e[1] else set()
        if kind == "rule":
            if (e[1], at) not in self.ends:
                self.ends[e[1], at] = set()
                self.again = True
            return self.ends[e[1], at]
        if kind == "seq":
            places = {at}
            for part in e[1]:
                places = set().union(*(self.run(part, p) for p in places)) if places else places
            return places
        if kind == "alt":
            return set().union(*(self.run(part, at) for part in e[1]))
        _, inner, lo, hi = e
        places, out, n = {at}, set(), 0
        while True:
            if n >= lo:
                if places <= out and n > lo:
                    return out
                out |= places
            if not places or n == hi or n > lo + len(self.text) + 1:
                return out
            places = set().union(*(self.run(inner, p) for p in places))
            n += 1

    def accepts(self):
        return len(self.text) in self.ends[0, 0]


def expression(r, depth=0):
    kind = r.choice(["char", "char", "class", "dot", "group", "alt", "seq"]) if depth < 4 else "char"
    if kind == "char":
        e = r.choice("ab")
    elif kind == "class":
        e = r.choice(["[ab]", "[^a]", "[a-b]", "\\w", "[\\d]", "[^\\Wa]"])
    elif kind == "dot":
        e = "."
    elif kind == "seq":
        e = "(?:%s%s)" % (expression(r, depth + 1), expression(r, depth + 1))
    elif kind == "alt":
        e = "(%s|%s)" % (expression(r, depth + 1), expression(r, depth + 1))
    else:
        e = "(%s)" % expression(r, depth + 1)
    return e + r.choice(["", "", "", "*", "+", "?", "{2}", "{1,2}", "{0,1}?"])


def main():
    quick = os.environ.get("WEFT_TEST_QUICK")
    count = int(sys.argv[2]) if len(sys.argv) > 2 else 120 if quick else 400
    seed = int(sys.argv[3]) if len(sys.argv) > 3 else 1
    texts = ["".join(t) for n in range(6) for t in itertools.product("ab", repeat=n)]
    cli = subprocess.Popen([sys.argv[1]], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def ask(what):
        cli.stdin.write(json.dumps(what) + "\n")
        cli.stdin.flush()
        return json.loads(cli.stdout.readline())

    refused = walked = accepted = limits = full = 0
    for i in range(count):
        rules, text = Gen(seed * 100000 + i).grammar()
        got = ask({"gbnf": text, "texts": texts, "walks": 5, "seed": i})
        if "error" in got:
            refused += 1
            if got["code"] == "limit":      # repetitions of repetitions
                limits += 1
                continue
            assert "left recursion" in got["error"] or "no text fulfils it" in got["error"], (text, got)
            if "no text" in got["error"]:
                assert not any(Oracle(rules, t).accepts() for t in texts), text
            continue
        for t, yes in zip(texts, got["ok"]):
            want = Oracle(rules, t).accepts()
            full += yes is None and want
            assert yes == want or (yes is None), "%s\n%r: %s, and should be %s" % (text, t, yes, want)
            accepted += bool(yes)
        for t in got["walks"]:
            # What is written may be any character; the oracle knows two.
            if t is not None and set(t) <= set("ab") and len(t) < 40:
                walked += 1
                assert Oracle(rules, t).accepts(), (text, t)
    print("%d grammars, %d refused; %d texts accepted, %d with too many ways, %d walks" % (count, refused, accepted, full, walked))
    assert full < accepted // 50, "%d texts with too many ways to be read" % full
    assert limits <= count // 50
    assert count // 10 < refused < count // 2 and walked > count // 20, "the generator makes little that is worth asking"

    r = random.Random(seed)
    for i in range(count):
        e = expression(r)
        e = r.choice(["%s", "^%s$", "%s|b", "^%s"]) % e
        got = ask({"regex": e, "texts": texts})
        assert "ok" in got, (e, got)
        for t, yes in zip(texts, got["ok"]):
            want = re.fullmatch(e, t) is not None
            assert yes == want, "%s\n%r: %s, and should be %s" % (e, t, yes, want)
    cli.stdin.close()
    assert cli.wait() == 0


main()
