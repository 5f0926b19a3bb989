"""What weft brings for running as a service, against a server that runs: names in dashboard and alerts, the socket's
permissions, what is said of an open address.
Run as: test_service.py WEFT MODEL SERVICE-DIR"""
import json
import os
import re
import shutil
import stat
import subprocess
import sys
import tempfile
import unittest

from serverkit import COMPLETIONS, PATIENCE, Server

WEFT, MODEL, SERVICE = sys.argv[1:4]
# Prometheus' own: the target itself, and labels that it adds.
OWN, OWN_LABELS = {"up"}, {"instance", "job", "le"}
FUNCTIONS = {"rate", "increase", "sum", "by", "and", "or", "histogram_quantile", "label_values"}


def file(name):
    with open(os.path.join(SERVICE, name)) as f:
        return f.read()


def expressions():
    """(where, expression) of everything that asks Prometheus."""
    dashboard = json.loads(file("grafana.json"))
    for p in dashboard["panels"]:
        for t in p.get("targets", []):
            yield p["title"], t["expr"]
    for v in dashboard["templating"]["list"]:
        if v["type"] == "query":
            yield v["name"], v["query"]["query"]
    for line in file("alerts.yml").splitlines():
        if line.strip().startswith("expr:"):
            yield "alerts.yml", line.split("expr:", 1)[1].strip()


def names_of(expr):
    """Metrics of an expression, and the labels that it asks of them."""
    labels = set(re.findall(r"(\w+)\s*(?:=~|!~|!=|=)\s*\"", expr))
    for group in re.findall(r"by \(([^)]*)\)", expr):
        labels |= {name.strip() for name in group.split(",")}
    bare = re.sub(r"\{[^}]*\}|\[[^]]*\]|by \([^)]*\)|\"[^\"]*\"", "", expr)
    bare = re.sub(r"label_values\((\w+), \w+\)", r"\1", bare)
    return set(re.findall(r"[a-zA-Z_:][\w:]*", bare)) - FUNCTIONS, labels - OWN_LABELS


class Monitoring(unittest.TestCase):
    def test_every_name_is_there(self):
        d = tempfile.TemporaryDirectory()
        self.addCleanup(d.cleanup)      # once the server does not write there any more
        s = Server([WEFT, "serve", MODEL, "--port", "0", "--port-file", "{port_file}", "--prompt-cache-dir", d.name])
        self.addCleanup(s.close)
        s.post(COMPLETIONS, {"prompt": "a", "max_tokens": 1})
        text = s.ask("GET", "/metrics").text()
        types = dict(re.findall(r"^# TYPE (\S+) (\S+)$", text, re.M))
        there = set(re.findall(r"^([\w:]+)", text, re.M))
        labels = {name: set() for name in types}
        for name, held in re.findall(r"^([\w:]+)\{(.*)\} ", text, re.M):
            labels.setdefault(name, set()).update(re.findall(r"(\w+)=\"", held))
        seen = 0
        for where, expr in expressions():
            names, wanted = names_of(expr)
            self.assertTrue(names, expr)
            for name in names - OWN:
                seen += 1
                self.assertIn(name, there, "%s: %s" % (where, expr))
                if "rate(" + name in expr or "increase(" + name in expr:
                    self.assertIn(types.get(re.sub("_bucket$", "", name)), ("counter", "histogram"), expr)
            for label in wanted:
                self.assertTrue(any(label in labels.get(n, ()) for n in names), "%s: no label %s: %s" % (where, label, expr))
        self.assertGreater(seen, 40)

    def test_names_are_found(self):
        names, labels = names_of('sum by (instance, cause) (rate(weft_a_total{status=~"5.."}[5m])) / weft_b > 0.05')
        self.assertEqual((names, labels), ({"weft_a_total", "weft_b"}, {"cause", "status"}))

    def test_dashboard(self):
        panels = json.loads(file("grafana.json"))["panels"]
        self.assertEqual(len({p["id"] for p in panels}), len(panels))
        for p in panels:
            g = p["gridPos"]
            self.assertLessEqual(g["x"] + g["w"], 24)


class Package(unittest.TestCase):
    def test_builds_with_what_the_build_needs(self):
        """debian/control asks for the libraries that script/packages installs for the build."""
        with open(os.path.join(SERVICE, "../script/packages")) as f:
            build = {line.split()[1] for line in f if line.startswith("build ")}
        with open(os.path.join(SERVICE, "../debian/control")) as f:
            wanted = set(re.split(r"[\s,]+", re.search(r"Build-Depends:(.*(?:\n .*)*)", f.read())[1]))
        # What every build of a package has anyway.
        self.assertEqual(build - wanted, {"ca-certificates", "gcc", "libc6-dev"})


class Unit(unittest.TestCase):
    @unittest.skipUnless(shutil.which("systemd-analyze") and os.path.exists("/bin/kill"), "no systemd-analyze, or no kill")
    def test_systemd_takes_it(self):
        """As it is installed, but for the program, which lies where it was built, and the manual page, which may not be there."""
        text = file("weft.service.in").replace("@BINDIR@/weft", os.path.abspath(WEFT))
        with tempfile.TemporaryDirectory() as d:
            path = os.path.join(d, "weft.service")

            def verify(text):
                with open(path, "w") as f:
                    f.write(re.sub("(?m)^Documentation=.*\n", "", text))
                return subprocess.run(["systemd-analyze", "verify", path], capture_output=True, text=True)
            p = verify(text)
            self.assertEqual((p.returncode, p.stderr), (0, ""))
            self.assertIn("ProtectHoome", verify(text.replace("ProtectHome", "ProtectHoome")).stderr)


class Starting(unittest.TestCase):
    def test_sample_settings(self):
        """The service's own options are options, also those that stand there as comments."""
        with tempfile.TemporaryDirectory() as d:
            path = os.path.join(d, "weft.conf")
            text = re.sub(r"^#([\w-]+ =)", r"\1", file("weft.conf"), flags=re.M)
            keys = os.path.join(d, "keys")
            with open(keys, "w") as f:
                f.write("ann secret\n")
            for name, value in (("model", MODEL), ("host", "unix:%s/weft.sock" % d), ("api-key-file", keys), ("prompt-cache-dir", d)):
                self.assertRegex(text, "(?m)^%s = " % name)
                text = re.sub("(?m)^%s = .*$" % name, "%s = %s" % (name, value), text)
            text = re.sub(r"(?m)^port = .*$", "", text)
            with open(path, "w") as f:
                f.write(text)
            # As under the unit: the socket is the group's, and nobody else's.
            p = subprocess.Popen(["sh", "-c", 'umask 0007; exec "$0" serve --config "$1" --port-file "$2/port"', WEFT, path, d],
                                 stderr=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True)
            try:
                lines = []
                for line in p.stderr:
                    lines.append(line)
                    if "serving" in line:
                        break
                self.assertIn("serving", "".join(lines[-1:]), "".join(lines))
                mode = os.stat(os.path.join(d, "weft.sock")).st_mode
                self.assertTrue(stat.S_ISSOCK(mode))
                self.assertEqual(stat.S_IMODE(mode), 0o770)
            finally:
                p.terminate()
                p.stderr.read()
                p.stderr.close()
                self.assertEqual(p.wait(PATIENCE), 0)

    def test_open_to_everybody(self):
        def said(*options):
            s = Server([WEFT, "serve", MODEL, "--port", "0", "--port-file", "{port_file}", *options])
            try:
                s.ask("GET", "/health")     # it answers once it has said all
                return s.text()
            finally:
                s.close()

        self.assertRegex(said("--host", "0.0.0.0"), "(?m)warn.*--host 0.0.0.0 without --api-key: every client")
        self.assertNotIn("every client", said("--host", "0.0.0.0", "--api-key", "k"))
        self.assertNotIn("every client", said())


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
