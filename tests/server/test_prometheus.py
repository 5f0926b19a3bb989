"""Prometheus itself scrapes two servers, one with a key, with the rules that weft brings: every sample is taken, every rule and
every expression of the dashboard is evaluated.
Run as: test_prometheus.py WEFT MODEL SERVICE-DIR"""
import http.client
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import unittest
import urllib.parse

from serverkit import COMPLETIONS, PATIENCE, Server

WEFT, MODEL, SERVICE = sys.argv[1:4]
RULES = os.path.join(os.path.abspath(SERVICE), "alerts.yml")

if not (shutil.which("prometheus") and shutil.which("promtool")):
    print("skipped: no prometheus (Debian: prometheus)")
    sys.exit(77)

CONFIG = """
global: {{ scrape_interval: 1s, evaluation_interval: 1s }}
rule_files: [ "{rules}" ]
scrape_configs:
  - job_name: weft
    static_configs: [{{ targets: ["127.0.0.1:{open}"] }}]
  - job_name: keyed
    static_configs: [{{ targets: ["127.0.0.1:{keyed}"] }}]
    authorization: {{ credentials_file: "{key}" }}
"""


class Prometheus(unittest.TestCase):
    def ask(self, path, **query):
        c = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE)
        c.request("GET", path + "?" + urllib.parse.urlencode(query))
        r = json.loads(c.getresponse().read())
        c.close()
        self.assertEqual((r["status"], r.get("warnings", [])), ("success", []), (path, query, r))
        return r["data"]

    def until(self, what, holds):
        end = time.monotonic() + PATIENCE
        while not (got := holds()):
            self.assertIsNone(self.prometheus.poll(), self.log())
            self.assertLess(time.monotonic(), end, what + "\n" + self.log())
            time.sleep(0.05)
        return got

    def log(self):
        with open(os.path.join(self.dir, "log")) as f:
            return f.read()

    def promtool(self, *args):
        p = subprocess.run(["promtool", *args], capture_output=True, text=True)
        self.assertEqual(p.returncode, 0, (args, p.stdout, p.stderr))
        return p.stdout

    def setUp(self):
        self.dir = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, self.dir)
        self.server = []
        for options in ([], ["--api-key", "secret"]):
            s = Server([WEFT, "serve", MODEL, "--port", "0", "--port-file", "{port_file}", "--threads", "1", "--log-level", "error",
                        "--prompt-cache-dir", os.path.join(self.dir, "kept"), *options])
            self.server.append(s)
            self.addCleanup(lambda s=s: s.proc.poll() is None and s.proc.kill())
        key, config = os.path.join(self.dir, "key"), os.path.join(self.dir, "prometheus.yml")
        with open(key, "w") as f:
            f.write("secret")
        with open(config, "w") as f:
            f.write(CONFIG.format(rules=RULES, open=self.server[0].port, keyed=self.server[1].port, key=key))
        self.assertIn("SUCCESS", self.promtool("check", "config", config))
        with open(os.path.join(self.dir, "log"), "w") as log:
            self.prometheus = subprocess.Popen(["prometheus", "--config.file", config, "--storage.tsdb.path", os.path.join(self.dir, "data"),
                                                "--web.listen-address", "127.0.0.1:0", "--log.level", "debug"], stdout=log, stderr=log, stdin=subprocess.DEVNULL)
        self.addCleanup(lambda: (self.prometheus.kill(), self.prometheus.wait()))
        self.port = int(self.until("an address", lambda: re.search(r"Listening on. address=127\.0\.0\.1:(\d+)", self.log()))[1])

    def test_scrapes(self):
        rules = int(re.search(r"(\d+) rules found", self.promtool("check", "rules", RULES))[1])
        self.assertEqual(self.server[0].post(COMPLETIONS, {"prompt": "a b c", "max_tokens": 3}).status, 200)
        page = self.server[0].ask("GET", "/metrics").text()
        self.until("ready", lambda: "ready to receive web requests" in self.log())

        def up():
            targets = self.ask("/api/v1/targets")["activeTargets"]
            return len(targets) == 2 and all(t["health"] == "up" and not t["lastError"] for t in targets)
        self.until("both targets are up", up)
        self.until("the request is seen", lambda: self.ask("/api/v1/query", query='weft_requests_total{job="weft"} > 0')["result"])

        def evaluated():
            all_ = [r for g in self.ask("/api/v1/rules")["groups"] for r in g["rules"]]
            return len(all_) == rules and all(r["health"] == "ok" and not r.get("lastError") for r in all_)
        self.until("all rules are evaluated", evaluated)
        self.assertEqual([a for a in self.ask("/api/v1/alerts")["alerts"] if a["state"] == "firing"], [])
        # Every sample of the page is a series, under its own type.
        names = {re.match(r"[\w:]+", line)[0] for line in page.splitlines() if line and line[0] != "#"}
        have = set(self.ask("/api/v1/label/__name__/values"))
        self.assertEqual(names - have, set())
        kinds = {name: m[0]["type"] for name, m in self.ask("/api/v1/metadata").items()}
        for name, kind in re.findall(r"^# TYPE (\S+) (\S+)$", page, re.M):
            self.assertEqual(kinds[name], kind)
        with open(os.path.join(SERVICE, "grafana.json")) as f:
            panels = json.load(f)["panels"]
        for expr in [t["expr"] for p in panels for t in p.get("targets", [])]:
            self.ask("/api/v1/query", query=re.sub(r"\$\w+", "5m", expr.replace("$instance", ".*")))
        self.assertEqual([line for line in self.log().splitlines() if re.search(r"level=error|append failed|Error on ingesting|rule failed", line)], [])
        for s in self.server:
            s.close()


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
