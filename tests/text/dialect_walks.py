"""Random tools in every dialect of calls: what the compiler lets a model write, read as the server reads it.

    dialect_walks.py GRAMMAR_CLI [COUNT] [SEED]

Tools with random schemas, open ones as well: the arguments are accepted by python3-jsonschema.  Tools whose schemas
allow one value each: the arguments are that value, byte for byte of every string.  All tools are strict, so that what
cannot be held is refused and not let go.
"""
import json
import os
import random
import subprocess
import sys

sys.path.insert(0, os.path.dirname(__file__))
from schema_walks import Gen, jsonschema, twice

NAMES = ["city", "n", "list", "long_name", "x y", "é", "ci", "a-b", "from"]
# Strings that forms of calls could take for something else.
ODD = ["", " ", "1", "-0", "1e3", "true", "True", "null", "None", "[1]", "{}", '{"a": 1}', "[", "'", '"', "\\", "\\n", "\n", "\na\n", " a ",
       "\t", "\r\n", "a, b=1", ")", "]", "é\U0001f600", "\u2028", "&lt;", "</p", "</parameter>", "x</parameter>\n</function>\n</tool_call>", "<parameter=n>",
       "</arg_value>", "<arg_key>n</arg_key>", "<|tool_call_end|>", "]<|tool_call_end|>", "<|\"|>", "<tool_call|>", "<|call|>", "</function_calls>",
       "</tool_call>", "</invoke>", "</｜DSML｜parameter>", "<｜tool▁call▁end｜>", "[ARGS]{}", "</seed:tool_call>", "\n```", "<|end|>", "\x00", "\x7f"]


def root(g, depth=0):
    """A schema of arguments."""
    r = g.r
    if depth < 2 and g.maybe(0.25):
        kind = r.choice(["anyOf", "oneOf", "allOf", "$ref"])
        if kind == "$ref":
            return {"$ref": "#/definitions/r"}
        return {kind: [root(g, depth + 1) for _ in range(r.randrange(1, 3))]}
    keys = r.sample(NAMES, r.randrange(4))
    s = {"type": "object", "properties": {k: g.schema(1) for k in keys}, "required": [k for k in keys if g.maybe(0.6)]}
    if g.maybe(0.6):
        s["additionalProperties"] = False if g.maybe(0.6) else g.schema(2)
    if g.maybe(0.15):
        s["patternProperties"] = {r.choice(["^a", "^[a-c]{2,4}$", "_"]): g.schema(2)}
    return s


def random_tool(g):
    plain = root(g, 2)
    return dict(root(g), definitions={"d": g.schema(1), "e": g.schema(2), "r": plain})


def value(g, depth=0):
    r = g.r
    k = r.randrange(8 if depth < 2 else 5)
    if k < 3:
        return r.choice(ODD)
    if k < 5:
        return r.choice([0, 1, -1, 10, 2 ** 53 + 1, -0.5, 1.5, 1000000, None, True, False])
    if k < 6:
        return [value(g, depth + 1) for _ in range(r.randrange(3))]
    return {r.choice(NAMES): value(g, depth + 1) for _ in range(r.randrange(3))}


def same(a, b):
    """Equal as JSON: true is no 1, and 1.0 is 1."""
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(same(a[k], b[k]) for k in a)
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(map(same, a, b))
    return isinstance(a, bool) == isinstance(b, bool) and a == b


class Compiler:
    def __init__(self, path):
        self.cli = subprocess.Popen([path], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, encoding="utf-8")
        self.count = {}     # form: [read, refused]

    def ask(self, **request):
        self.cli.stdin.write(json.dumps(request) + "\n")
        self.cli.stdin.flush()
        line = self.cli.stdout.readline()
        if not line:
            sys.exit("the compiler ended on %s" % json.dumps(request))
        return json.loads(line)

    def calls(self, form, marks, schemas, seed, walks):
        """(text, name, arguments) of what is written and read back; [] where the tools are refused."""
        tools = [{"type": "function", "function": {"name": name, "parameters": s, "strict": True}} for name, s in schemas.items()]
        got = self.ask(tools=tools, form=form, marks=marks, walks=walks, seed=seed)
        count = self.count.setdefault(form, [0, 0])
        if "error" in got:
            known = got["code"] in ("unsupported", "limit") or "fulfils it" in got["error"] or "refers to itself" in got["error"] or "mark of strings" in got["error"]
            if not known:
                sys.exit("%s: refused: %s %s" % (form, got, json.dumps(schemas)))
            count[1] += 1
            return got["error"]
        out = []
        for text, calls in zip([t for t in got["walks"] if t is not None], got["calls"]):
            for name, arguments, malformed in calls:
                if malformed or name not in schemas:
                    sys.exit("%s, marks %d: %s %r read as %s(%s) of %s" % (form, marks, "malformed" if malformed else "no such tool", text, name, arguments, json.dumps(schemas)))
                try:
                    out.append((text, name, json.loads(arguments, object_pairs_hook=twice)))
                except KeyError:
                    continue
                count[0] += 1
        return out


def main():
    n = int(sys.argv[2]) if len(sys.argv) > 2 else 12 if os.environ.get("WEFT_TEST_QUICK") else 40
    first = int(sys.argv[3]) if len(sys.argv) > 3 else 1
    c = Compiler(sys.argv[1])
    forms = c.ask(forms=True)
    equal = unspelled = 0
    for seed in range(first, first + n):
        for form in forms:
            g = Gen("%d %s" % (seed, form))
            marks = g.r.choice([-1, -1, 0, 1, g.r.randrange(64)])
            schemas = {"f%d" % i: random_tool(g) for i in range(g.r.randrange(1, 3))}
            got = c.calls(form, marks, schemas, seed, 5)
            for text, name, arguments in got if isinstance(got, list) else ():
                errors = list(jsonschema.Draft7Validator(schemas[name]).iter_errors(arguments))
                if errors:
                    sys.exit("%s, marks %d: let through: %r read as %s by %s: %s" % (form, marks, text, json.dumps(arguments), json.dumps(schemas[name]), errors[0].message))
            wanted = {k: value(g) for k in g.r.sample(NAMES, g.r.randrange(1, 4))}
            schema = {"type": "object", "properties": {k: {"const": v} for k, v in wanted.items()}, "required": list(wanted), "additionalProperties": False}
            got = c.calls(form, marks, {"f": schema}, seed, 3)
            if isinstance(got, str):
                unspelled += 1
                continue
            for text, name, arguments in got:
                equal += 1
                if not same(arguments, wanted):
                    sys.exit("%s, marks %d: %r read as %s, and %s was meant" % (form, marks, text, json.dumps(arguments), json.dumps(wanted)))
    few = [(form, k) for form, k in c.count.items() if k[0] < n]
    print("%d seeds, %d forms: %d calls valid or equal (%d equal), %d sets refused, of these %d of single values" % (
        n, len(forms), sum(k[0] for k in c.count.values()), equal, sum(k[1] for k in c.count.values()), unspelled))
    print("; ".join("%s: %d, %d refused" % (form, *k) for form, k in c.count.items()))
    if few:
        sys.exit("hardly read: %s" % few)


main()
