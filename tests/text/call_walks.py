"""Random tools: calls that the compiler lets through, read as the server reads
them, have arguments that a validator accepts.

    call_walks.py GRAMMAR_CLI [COUNT] [SEED]
"""
import json, os, random, subprocess, sys

try:
    import jsonschema
except ImportError:
    print("skipped: no python3-jsonschema")
    sys.exit(77)

VALUES = [
    {"type": "string"}, {"type": "string", "maxLength": 4, "minLength": 1}, {"type": "string", "pattern": "^[a-c\\n<]{1,6}$"},
    {"enum": ["x", "two words", "a\"b\\c", "</p", "line\nbreak"]}, {"const": "only"}, {"type": "string", "format": "date"},
    {"type": "integer", "minimum": 0, "maximum": 50}, {"type": "number"}, {"type": "boolean"}, {"type": "null"},
    {"type": "array", "items": {"type": "string", "maxLength": 3}, "maxItems": 3},
    {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"], "additionalProperties": False},
    {"$ref": "#/$defs/color"}, {"$ref": "#/$defs/point"}, {"type": ["array", "null"], "items": {"type": "boolean"}},
    {"anyOf": [{"type": "integer"}, {"type": "null"}]}, {"description": "anything"},
]
DEFS = {"color": {"enum": ["red", "green"]},
        "point": {"type": "object", "required": ["x"], "properties": {"x": {"type": "integer"}}, "additionalProperties": False}}


def main():
    n = int(sys.argv[2]) if len(sys.argv) > 2 else 40 if os.environ.get("WEFT_TEST_QUICK") else 250 if os.environ.get("WEFT_TEST_FULL") else 100
    first = int(sys.argv[3]) if len(sys.argv) > 3 else 1
    cli = subprocess.Popen([sys.argv[1]], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, encoding="utf-8")
    read = 0
    for seed in range(first, first + n):
        r = random.Random(seed)
        tools, schemas = [], {}
        for t in range(r.randrange(1, 4)):
            keys = r.sample(["city", "n", "list", "long_name", "x y", "é", "ci"], r.randrange(5))
            schema = {"type": "object", "properties": {k: r.choice(VALUES) for k in keys},
                      "required": [k for k in keys if r.random() < 0.6], "$defs": DEFS}
            if r.random() < 0.7:
                schema["additionalProperties"] = False
            if r.random() < 0.1:
                schema = {}
            elif r.random() < 0.1:
                schema["uniqueItems"] = True
                schema["dependentRequired"] = {"a": ["b"]}
            name = "f%d" % t
            schemas[name] = schema
            tools.append({"type": "function", "function": {"name": name, "parameters": schema}})
        for form in ("tagged", "json", "llama", "python"):
            cli.stdin.write(json.dumps({"tools": tools, "form": form, "walks": 8, "seed": seed}) + "\n")
            cli.stdin.flush()
            line = cli.stdout.readline()
            if not line:
                print("the compiler ended on", json.dumps(tools))
                return 1
            got = json.loads(line)
            if "error" in got:
                print("refused:", got["error"], json.dumps(tools))
                return 1
            texts = [t for t in got["walks"] if t is not None]
            for text, (name, arguments, malformed) in ((t, c) for t, calls in zip(texts, got["calls"]) for c in calls):
                schema = schemas.get(name)
                # What cannot be held is free: any object, or anything up to the end of the function.
                if schema is not None and (not schema or "dependentRequired" in schema):
                    schema = {"type": "object"}
                # Nor can keywords that are no names.
                if form == "python" and schema and {"x y", "é"} & set(schema.get("properties", ())):
                    schema = {"type": "object"}
                if malformed or schema is None:
                    print("malformed" if malformed else "no such tool", repr(text), name, arguments, json.dumps(tools))
                    return 1
                value = json.loads(arguments)
                errors = list(jsonschema.Draft7Validator(schema).iter_errors(value))
                if errors:
                    print("let through:", repr(text), "read as", arguments, "by", json.dumps(schema), ":", errors[0].message)
                    return 1
                read += 1
    print(n, "sets of tools,", read, "calls read and valid")
    return 0 if read > 6 * n else 1


sys.exit(main())
