"""What is held out is held out: the generator still writes the sets in eval/ byte for byte, and no training conversation holds
a question of theirs, a held-out wording, or a held-out name, city, sum or invented word.

    /usr/bin/python3 tools/train/check_data.py [conversations]
"""
import filecmp
import glob
import json
import os
import random
import re
import subprocess
import sys
import tempfile

import data

HERE = os.path.dirname(os.path.abspath(__file__))
# common words and closed lists are the same on both sides, and so are the names that own things in a text
NAMED = re.compile(r"\b(" + "|".join(data.NAMES_TEST + data.CITIES_TEST) + r")\b")


def users(messages):
    return [m["content"] for m in messages if m["role"] == "user"]



def main():
    n = int(sys.argv[1]) if len(sys.argv) > 1 else 20000
    with tempfile.TemporaryDirectory() as d:
        subprocess.run([sys.executable, HERE + "/evalset.py", d], check=True, stdout=subprocess.DEVNULL)
        for f in sorted(glob.glob(HERE + "/eval/*")):
            assert filecmp.cmp(f, os.path.join(d, os.path.basename(f)), False), "the generator no longer writes " + f
    asked = {}
    for f in glob.glob(HERE + "/eval/*.jsonl"):
        for line in open(f):
            asked["\n".join(users(json.loads(line)["messages"]))] = os.path.basename(f)
    known = set(data.WORDS) | {w.lower() for w in data.NAMES + data.CITIES}
    r, found = random.Random(20261121), {}

    def saw(what):
        found[what] = found.get(what, 0) + 1

    for _ in range(n):
        s = data.make(r)
        u = users(s["messages"])
        for q in u:
            if data.held_form(q):
                saw((s["task"], "wording", next(f for f, p in data.HELD_FORMS.items() if p and p.fullmatch(q))))
        for i in range(len(u)):
            if "\n".join(u[:i + 1]) in asked:
                saw((s["task"], "question", u[i][:80], asked["\n".join(u[:i + 1])]))
        text = json.dumps(s["messages"], ensure_ascii=False)
        for w in NAMED.findall(text):
            saw((s["task"], "name", w))
        if s["task"].startswith("arithmetic") or s["task"] == "drill":
            for a, op, b in re.findall(r"(?<![\d+*] )\b(\d+) ([-+*]) (\d+) = \d+\.", s["messages"][-1]["content"]):
                if data.held("num", op, int(a), int(b)):
                    saw((s["task"], "sum", f"{a} {op} {b}"))
        if s["task"] in ("spelling", "reversing", "counting", "letters"):
            w = re.sub(r"[^a-z ]", "", u[-1]).split()
            for x in w:
                if len(x) > 3 and INVENTED.fullmatch(x) and x not in known and x not in ENGLISH and data.held("pseudo", x):
                    saw((s["task"], "invented word", x))
    for k, v in sorted(found.items(), key=lambda t: -t[1])[:40]:
        print(v, *k)
    print(n, "training conversations,", len(asked), "held-out questions:", len(found), "breaches")
    sys.exit(bool(found))


INVENTED = re.compile("(" + "|".join(sorted(set(data.SYL_A))) + "){2,3}(" + "|".join(data.SYL_B) + ")")
ENGLISH = set("have letters word words many does letter times many".split())

main()
