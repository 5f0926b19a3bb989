"""The cases of the official JSON Schema Test Suite against the grammar compiler.

    schema_suite.py GRAMMAR_CLI [SUITE_DIR] [--table] [--page=FILE]

A valid instance must be accepted, every beginning of it on the way; an invalid
one rejected.  A JSON value can be written in several ways and the compiler allows
one order of members, so an instance counts as accepted when some order of its
members is; numbers are written shortest and without exponent, text as it is.
Schemas that are refused (by name) count as refused, never as passed; those below
are expected to be refused in whole, and nothing else may be.  FILE's table must be the
one that --table prints.
"""
import itertools, json, os, subprocess, sys

SUITE = "/usr/share/json-schema-test-suite/tests"

# Files of which every case must be done.
WHOLE = {
    "additionalItems", "additionalProperties", "allOf", "anyOf", "boolean_schema", "const", "default", "enum",
    "exclusiveMaximum", "exclusiveMinimum", "items", "maxItems", "maxLength", "maxProperties", "maximum", "minItems",
    "minLength", "minProperties", "minimum", "multipleOf", "pattern", "patternProperties", "properties", "propertyNames",
    "required", "type", "format/date", "format/date-time", "format/email", "format/hostname", "format/ipv4", "format/ipv6",
    "format/json-pointer", "format/time", "format/uri", "format/uri-reference",
}
# Where the suite's older drafts and what is done here (2020-12) differ.
DIFFERS = {
    ("ref", "ref overrides any sibling keywords"): "since draft 2019-09 what stands beside $ref counts",
}


def number(v):
    if isinstance(v, int):
        return str(v)
    if v == int(v) and abs(v) < 1e22:
        return str(int(v))
    text = repr(v)
    return format(__import__("decimal").Decimal(text), "f") if "e" in text and abs(v) < 1e20 else text


def writings(v, limit=3000):
    """All texts of v, over the orders of members."""
    if isinstance(v, bool) or v is None:
        return [json.dumps(v)]
    if isinstance(v, (int, float)):
        return [number(v)]
    if isinstance(v, str):
        return [json.dumps(v, ensure_ascii=False)]
    if isinstance(v, list):
        parts = [writings(x, limit) for x in v]
        return ["[" + ",".join(p) + "]" for p in itertools.islice(itertools.product(*parts), limit)]
    items = [[json.dumps(k, ensure_ascii=False) + ":" + w for w in writings(x, limit)] for k, x in v.items()]
    out = []
    for order in itertools.permutations(items) if len(items) < 7 else [items]:
        for p in itertools.product(*order):
            out.append("{" + ",".join(p) + "}")
            if len(out) >= limit:
                return out
    return out


class Cli:
    def __init__(self, path):
        self.p = subprocess.Popen([path], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, encoding="utf-8")

    def ask(self, **kw):
        self.p.stdin.write(json.dumps(kw) + "\n")
        self.p.stdin.flush()
        line = self.p.stdout.readline()
        if not line:
            sys.exit("the compiler ended on " + json.dumps(kw)[:2000])
        return json.loads(line)


def row_of(item):
    name, (good, refused, _) = item
    return f"| {name} | {good} | {refused or ''} |"


def main():
    args = [a for a in sys.argv[1:] if not a.startswith("-")]
    suite = args[1] if len(args) > 1 else SUITE
    if not os.path.isdir(suite):
        print("skipped: no JSON Schema Test Suite at", suite)
        return 77
    cli = Cli(args[0])
    table, bad = {}, []
    drafts = [d for d in ("draft4", "draft6", "draft7") if os.path.isdir(os.path.join(suite, d))]
    for draft in drafts:
        folder = os.path.join(suite, draft)
        files = [(f, os.path.join(folder, f)) for f in sorted(os.listdir(folder)) if f.endswith(".json")]
        formats = os.path.join(folder, "optional", "format")
        if os.path.isdir(formats):
            files += [("format/" + f, os.path.join(formats, f)) for f in sorted(os.listdir(formats))]
        for name, path in files:
            name = name[:-5]
            row = table.setdefault(name, [0, 0, {}])
            for group in json.load(open(path, encoding="utf-8")):
                texts, owner = [], []
                for i, t in enumerate(group["tests"]):
                    for w in writings(t["data"]):
                        texts.append(w)
                        owner.append(i)
                got = cli.ask(schema=group["schema"], texts=texts)
                if "error" in got and got["error"].endswith("no value fulfils it"):
                    got["ok"] = [False] * len(texts)
                elif "error" in got:
                    row[1] += len(group["tests"])
                    row[2][got["error"]] = row[2].get(got["error"], 0) + len(group["tests"])
                    if got["code"] != "unsupported" or name in WHOLE:
                        bad.append((draft, name, group["description"], "refused", got["error"]))
                    continue
                if (name, group["description"]) in DIFFERS:
                    row[1] += len(group["tests"])
                    row[2][DIFFERS[name, group["description"]]] = len(group["tests"])
                    continue
                for i, t in enumerate(group["tests"]):
                    ok = any(o for o, w in zip(got["ok"], owner) if w == i)
                    row[0] += 1
                    if ok != t["valid"]:
                        row[0] -= 1
                        bad.append((draft, name, group["description"], t["description"], json.dumps(group["schema"])[:300],
                                    json.dumps(t["data"])[:200], "valid" if t["valid"] else "invalid"))
    for page in [a[7:] for a in sys.argv if a.startswith("--page=")]:
        told = [line.rstrip("\n") for line in open(page, encoding="utf-8")]
        bad += [(page, "has not the row", r) for r in map(row_of, sorted(table.items())) if r not in told]
    for name, (good, refused, why) in sorted(table.items()):
        if "--table" in sys.argv:
            print(row_of((name, (good, refused, why))))
        elif refused:
            print(f"{name}: {good} done, {refused} refused: " + "; ".join(f"{w[:120]} ({n})" for w, n in list(why.items())[:3]))
    print(sum(r[0] for r in table.values()), "cases as the suite says,", sum(r[1] for r in table.values()), "refused,", end=" ")
    for b in bad:
        print("WRONG", *b, sep=" | ")
    print(len(bad), "wrong")
    return 1 if bad else 0


sys.exit(main())
