"""bench/compare over programs that print made-up figures: who runs when, with which options, and what is taken.
Run as: test_compare.py BENCH/COMPARE"""
import json
import os
import subprocess
import sys
import tempfile
import unittest

COMPARE = os.path.abspath(sys.argv.pop(1))
# The bundled model says how long a join takes, a line of a file each time and 3e-7 s behind its end; any other model how fast it was.
WEFT = """case "$*" in
*weft-tiny*) echo x >> $0.asked; join=$(sed -n "$(wc -l < $0.asked)p" $0.joins 2> /dev/null)
    echo "[{\\"ceilings\\":{\\"seconds_per_join\\":${join:-3e-7}}}]";;
*) echo "[{\\"test\\":\\"x\\",\\"tokens_per_second\\":30,\\"floor_fraction\\":0.5}]";;
esac"""
# The first of two runs, which warms up, is slower; one option makes it faster.
BENCH = 'r=10; case " $* " in *" -fast 1 "*) r=15;; esac\necho "[{\\"build_commit\\":\\"abc\\",\\"samples_ts\\":[1,$r]}]"'
BATCHED = 'echo "|  PP |  TG |"\necho "| 8 | 4 | 2 | 24 | 1 | 1 | 1 | 2 |"\necho "| 8 | 4 | 2 | 24 | 1 | 1 | 1 | 20 |"'


class Compare(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.calls = self.path("calls")
        self.program("weft", WEFT)
        self.program("llama-bench", BENCH)
        self.program("llama-batched-bench", BATCHED)

    def path(self, name):
        return os.path.join(self.folder.name, name)

    def program(self, name, text):
        with open(self.path(name), "w") as f:
            f.write('#!/bin/sh\ncase "$1" in --version|--help) echo made up; exit;; esac\n'
                    'echo "%s $GLIBC_TUNABLES $*" >> %s\n%s\n' % (name, self.calls, text))
        os.chmod(self.path(name), 0o700)

    def run_it(self, *words, peer="", code=0):
        p = subprocess.run([sys.executable, COMPARE, *words, "--weft", self.path("weft"), "model", "--peer", "peer",
                            self.folder.name, "f.gguf", peer], capture_output=True, text=True)
        self.assertEqual(p.returncode, code, p.stdout + p.stderr)
        return p.stdout + p.stderr

    def told(self):
        """Who was asked for a figure, with what."""
        with open(self.calls) as f:
            return [line.split() for line in f if "weft-tiny" not in line]

    def test_rounds(self):
        out = self.run_it("pp16", "tg4x2", "--rounds", "3")
        self.assertEqual([w[0] for w in self.told()], ["weft", "llama-bench", "weft", "llama-batched-bench",
                                                       "llama-bench", "weft", "llama-batched-bench", "weft",
                                                       "weft", "llama-bench", "weft", "llama-batched-bench"])
        self.assertIn("3.00x", out)
        self.assertIn("1.50x", out)
        self.assertIn("huge pages for everybody", out)
        self.assertTrue(all(w[1] == "glibc.malloc.hugetlb=1" for w in self.told() if w[0] != "weft"))

    def test_states(self):
        """Near and far runs have ratios of their own; a run that began near and ended far has none."""
        self.assertNotIn("near", self.run_it("pp16", "--rounds", "2"))
        os.unlink(self.path("weft.asked"))
        with open(self.path("weft.joins"), "w") as f:
            f.write("3e-7\n" * 4 + "1e-6\n" * 4 + "3e-7\n1e-6\n" * 2)
        self.assertIn("near 3.00x (1/1), far 3.00x (1/1)", self.run_it("pp16", "--rounds", "3"))

    def test_no_huge_pages(self):
        self.run_it("pp16", "--rounds", "1", "--huge-pages", "off")
        weft, peer = self.told()
        self.assertIn("--no-huge-pages", weft)
        self.assertEqual(peer[1], "-m")

    def test_sweep(self):
        record = self.path("record")
        out = self.run_it("pp16", "--rounds", "1", "--record", record, peer="-fast 0|-fast 1|")
        self.assertIn("2.00x", out)
        with open(record) as f:
            rows = [json.loads(line) for line in f]
        self.assertEqual([r.get("options") for r in rows], [None, "-fast 1"])
        self.assertEqual((rows[1]["commit"], rows[1]["huge_pages"]), ("abc", "on"))

    def test_built(self):
        self.assertIn("NOT ALIKE: peer is not known to be built at -O3", self.run_it("pp16", "--rounds", "1"))
        self.program("c++", "")
        for said, flags, alike in ("g++ (x) 1.2.3", "-O3", True), ("x clang version 1.2.3", "-O2", False):
            with open(self.path("c++"), "w") as f:
                f.write("#!/bin/sh\necho '%s'\n" % said)
            with open(self.path("CMakeCache.txt"), "w") as f:
                f.write("CMAKE_BUILD_TYPE:STRING=Release\nCMAKE_CXX_COMPILER:FILEPATH=%s\n"
                        "CMAKE_CXX_FLAGS_RELEASE:STRING=%s\nGGML_NATIVE:BOOL=ON\n" % (self.path("c++"), flags))
            out = self.run_it("pp16", "--rounds", "1")
            self.assertIn("%s 1.2.3, Release %s, GGML_NATIVE=ON" % ("gcc" if alike else "clang", flags), out)
            self.assertEqual("peer is not known to be built at -O3" in out, not alike)
            self.assertIn("compilers differ: weft ?, peer %s 1.2.3" % ("gcc" if alike else "clang"), out)

    def test_failures(self):
        self.program("llama-bench", "echo no such model >&2; exit 3")
        out = self.run_it("pp16", "--rounds", "1", code=1)
        self.assertIn("no such model", out)
        self.assertIn("30.0", out)              # the other's figure stands
        os.unlink(self.path("llama-bench"))
        self.assertIn("there is no program", self.run_it("pp16", code=1))
        self.assertIn("measures nothing", self.run_it("pp512x8", code=2))
        self.assertIn("which tests", subprocess.run([sys.executable, COMPARE], capture_output=True, text=True).stderr)


if __name__ == "__main__":
    unittest.main()
