"""Random schemas: what the compiler lets through is what a validator accepts.

    schema_walks.py GRAMMAR_CLI [COUNT] [SEED]

Texts that follow what is allowed byte by byte, to their end, must be JSON that
python3-jsonschema accepts; and random values are accepted by both or by neither.
"""
import json, os, random, re, subprocess, sys

sys.path.insert(0, os.path.dirname(__file__))
try:
    import jsonschema
except ImportError:
    print("skipped: no python3-jsonschema")
    sys.exit(77)

class Ecma:
    """Python's expressions where they mean something else: $ is the end alone, \\d is ASCII."""

    @staticmethod
    def search(pattern, text):
        return re.search(pattern.replace("$", r"\Z"), text, re.ASCII)


for module in ("_validators", "_keywords", "_utils", "_legacy_keywords"):
    if hasattr(jsonschema, module):
        getattr(jsonschema, module).re = Ecma

KEYS = ["a", "b", "ab", "key", "\u00e9", "x\"y", "\n"]
PATTERNS = ["^a", "b$", "^[a-c]{2,4}$", "\\d+", "^(x|yy)*$", "[^x]", "[^a-z]", "^[^ ]+$", "^a?b*c+$", "é|ß"]
STRINGS = ["", "a", "b", "ab", "abc", "yy", "12", "é", "x\"y", "\\", "\n", "\U0001f600", "a b"]
NUMBERS = [0, 1, -1, 2, 3, 7, 10, 12, 100, -5, 0.5, 1.5, -2.25, 3.14, 1000000]


class Gen:
    def __init__(self, seed):
        self.r = random.Random(seed)

    def maybe(self, p):
        return self.r.random() < p

    def count(self, top):
        lo = self.r.randrange(top)
        return lo, lo + self.r.randrange(top)

    def schema(self, depth=0):
        r = self.r
        if depth > 3 or self.maybe(0.05):
            return r.choice([True, {}, {"type": "null"}, {"type": "integer"}, {"type": "string"}, {"type": "boolean"}])
        kind = r.choice(["string", "integer", "number", "array", "object", "object", "enum", "any", "of", "ref", "types"])
        if kind == "string":
            s = {"type": "string"}
            if self.maybe(0.5):
                lo, hi = self.count(5)
                if self.maybe(0.7):
                    s["minLength"] = lo
                if self.maybe(0.7):
                    s["maxLength"] = hi
            if self.maybe(0.4):
                s["pattern"] = r.choice(PATTERNS)
            return s
        if kind in ("integer", "number"):
            s = {"type": kind}
            lo, hi = sorted([r.choice(NUMBERS), r.choice(NUMBERS)])
            if self.maybe(0.5):
                s[r.choice(["minimum", "exclusiveMinimum"])] = lo
            if self.maybe(0.5):
                s[r.choice(["maximum", "exclusiveMaximum"])] = hi
            if self.maybe(0.2):
                s["multipleOf"] = r.choice([1, 2, 3, 7, 0.5, 0.25, 10])
            return s
        if kind == "array":
            s = {"type": "array"}
            if self.maybe(0.8):
                s["items"] = self.schema(depth + 1)
            if self.maybe(0.3):
                s["items"] = [self.schema(depth + 1) for _ in range(r.randrange(1, 3))]
                if self.maybe(0.5):
                    s["additionalItems"] = self.schema(depth + 1) if self.maybe(0.5) else False
            if self.maybe(0.5):
                s["minItems"], s["maxItems"] = self.count(4)
            return s
        if kind == "object":
            s = {"type": "object"}
            keys = r.sample(KEYS, r.randrange(4))
            if keys:
                s["properties"] = {k: self.schema(depth + 1) for k in keys}
            s["required"] = [k for k in keys if self.maybe(0.5)] + (["zz"] if self.maybe(0.1) else [])
            if self.maybe(0.7):
                s["additionalProperties"] = self.schema(depth + 1) if self.maybe(0.4) else False
            if self.maybe(0.2):
                s["patternProperties"] = {r.choice(PATTERNS): self.schema(depth + 1)}
            if self.maybe(0.2):
                s["propertyNames"] = r.choice([{"maxLength": 2}, {"pattern": "^[a-z]*$"}, {"enum": ["a", "b", "q"]}])
            if self.maybe(0.2):
                lo, s["maxProperties"] = self.count(3)
                s["minProperties"] = lo % 2     # of unnamed members one counts
            return s
        if kind == "enum":
            vals = r.sample(STRINGS, 3) + r.sample(NUMBERS, 2) + [None, True, [1, "a"], {"a": 1, "b": [None]}]
            vals = r.sample(vals, r.randrange(1, 5))
            return {"enum": vals} if self.maybe(0.8) else {"const": vals[0]}
        if kind == "any":
            s = self.schema(depth + 1)
            t = self.schema(depth + 1)
            return {"allOf": [s, t]}
        if kind == "of":
            s = {r.choice(["anyOf", "anyOf", "oneOf"]): [self.schema(depth + 1) for _ in range(r.randrange(1, 4))]}
            if self.maybe(0.2):
                s["not"] = r.choice([{"type": "null"}, {"type": ["object", "string"]}, {"enum": [1, "a", None]}, {"type": "integer"}])
            return s
        if kind == "ref":
            return {"$ref": "#/definitions/" + r.choice("de")}
        return {"type": r.sample(["null", "integer", "string", "boolean", "array"], 2)}

    def value(self, depth=0):
        r = self.r
        k = r.randrange(9 if depth < 3 else 6)
        if k < 2:
            return r.choice(STRINGS)
        if k < 4:
            return r.choice(NUMBERS)
        if k < 6:
            return r.choice([None, True, False])
        if k < 7:
            return [self.value(depth + 1) for _ in range(r.randrange(3))]
        return {r.choice(KEYS): self.value(depth + 1) for _ in range(r.randrange(3))}


def twice(pairs):
    """An object as a dict; a member that comes twice is not what a schema can speak of."""
    d = dict(pairs)
    if len(d) != len(pairs):
        raise KeyError
    return d


def main():
    from itertools import permutations
    quick = os.environ.get("WEFT_TEST_QUICK")
    n = int(sys.argv[2]) if len(sys.argv) > 2 else 150 if quick else 700
    first = int(sys.argv[3]) if len(sys.argv) > 3 else 1
    cli = subprocess.Popen([sys.argv[1]], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, encoding="utf-8")
    walks = values = agreed = refused = empty = skipped = 0

    def texts_of(v):
        # The few orders that small objects have.
        if isinstance(v, dict):
            for p in permutations(v.items()):
                yield from combine([[json.dumps(k, ensure_ascii=False) + ":" + t for t in texts_of(x)] for k, x in p], "{%s}")
        elif isinstance(v, list):
            yield from combine([list(texts_of(x)) for x in v], "[%s]")
        else:
            yield json.dumps(v, ensure_ascii=False)

    def combine(parts, form):
        from itertools import product
        for p in product(*parts):
            yield form % ",".join(p)

    for seed in range(first, first + n):
        g = Gen(seed)
        schema = {"allOf": [g.schema()], "definitions": {"d": g.schema(1), "e": g.schema(2)}}
        vals = [g.value() for _ in range(12)]
        texts, owner = [], []
        for i, v in enumerate(vals):
            for t in list(texts_of(v))[:50]:
                texts.append(t)
                owner.append(i)
        cli.stdin.write(json.dumps({"schema": schema, "texts": texts, "walks": 6, "seed": seed}) + "\n")
        cli.stdin.flush()
        line = cli.stdout.readline()
        if not line:
            print("the compiler ended on", json.dumps(schema))
            return 1
        got = json.loads(line)
        check = jsonschema.Draft7Validator(schema)
        if "error" in got and "no value fulfils it" not in got["error"]:
            if got["code"] not in ("unsupported", "limit") and "refers to itself" not in got["error"]:
                print("refused:", got, json.dumps(schema))
                return 1
            refused += 1
            continue
        if "error" in got:
            empty += 1
            got = {"ok": [False] * len(texts), "walks": []}
        for t in got["walks"]:
            if t is None:
                skipped += 1
                continue
            try:
                v = json.loads(t, object_pairs_hook=twice)
            except KeyError:
                skipped += 1
                continue
            walks += 1
            errors = list(check.iter_errors(v))
            if errors:
                print("let through:", t, "by", json.dumps(schema), ":", errors[0].message)
                return 1
        for i, v in enumerate(vals):
            ok = any(o for o, w in zip(got["ok"], owner) if w == i)
            values += 1
            agreed += ok
            if ok != check.is_valid(v):
                print("disagree (here %s):" % ok, json.dumps(v), json.dumps(schema))
                return 1
    print(f"{n} schemas, {refused} refused, {empty} that no value fulfils; {walks} walks valid ({skipped} without end, or with a member twice); "
          f"{values} values judged alike, {agreed} of them valid")
    return 0 if walks > n and agreed > values // 50 else 1


if __name__ == "__main__":
    sys.exit(main())
