"""What the tests of `weft quantize` share: a count of what failed, and how the program is run."""
import subprocess, sys

weft, models, shared = sys.argv[1:4]
failures = []


def check(ok, what):
    if not ok:
        print("FAIL", what)
        failures.append(what)


def run(*args, **more):
    p = subprocess.run([weft, *args], capture_output=True, text=True, timeout=250, **more)
    return p.returncode, p.stdout, p.stderr
