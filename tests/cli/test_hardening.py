"""The program has what docs/reliability.md says of a release build: test_hardening.py WEFT."""
import re
import subprocess
import sys

told = subprocess.run(["readelf", "-hlsdW", sys.argv[1]], capture_output=True, text=True, check=True).stdout
for what, mark in (
        ("position-independent", r"Type:\s+DYN"),
        ("read-only after relocation", r"^\s+GNU_RELRO\s"),
        ("all symbols bound at start", r"\(FLAGS_1\)\s+Flags:.*\bNOW\b"),
        ("a stack that is not executable", r"^\s+GNU_STACK\s(?:\s*0x\w+){5}\s+RW\s"),
        ("stack protector", r"\bUND __stack_chk_fail\b"),
        ("checked copies of glibc", r"\bUND __(?:memcpy|snprintf|read|vsnprintf)_chk\b")):
    assert re.search(mark, told, re.M), "%s: not %s" % (sys.argv[1], what)
