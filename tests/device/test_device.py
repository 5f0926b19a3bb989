"""A server on a device: its bytes are the processor's, also for prefixes that the processor kept, beside other requests, and for images.
Run as: test_device.py WEFT MODELS PICTURE DEVICE MIXTURE"""
import base64
import json
import os
import re
import subprocess
import sys
import tempfile
import threading
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../server"))
import serverkit  # noqa: E402
from adapterkit import adapter  # noqa: E402
from serverkit import Server  # noqa: E402

serverkit.PATIENCE = 600  # PoCL may compile kernels for minutes before the first answer

WEFT, MODELS, PICTURE, DEVICE, MIXTURE = sys.argv[1:6]
TINY, EYES = (os.path.join(MODELS, name) for name in ("weft-tiny", "weft-tiny-eyes"))
CHAT = "/v1/chat/completions"
SMALL = ("--kv-bytes", "16M", "--ctx-size", "1024")


def ask(text, **more):
    say = [{"role": "system", "content": "You answer in few words. Be brief and do not guess."},
           {"role": "user", "content": text}]
    return dict({"messages": say, "max_tokens": 8, "temperature": 0, "logprobs": True, "cache_report": True}, **more)


ASKS = [ask("Is Lima larger than Oslo?"), ask("What is the capital of France?", temperature=1.0, seed=5),
        ask("Say the first five numbers.", response_format={"type": "json_object"})]


def start(model, device, *options):
    argv = [WEFT, "serve", model, "--port", "0", "--port-file", "{port_file}", "--threads", "1", "--cpu", "scalar",
            "--device", device, *SMALL, *options]
    return Server(argv)


def said(reply):
    assert reply.status == 200, reply.text()
    return reply.json()["choices"]


def picture():
    with open(PICTURE, "rb") as f:
        data = base64.b64encode(f.read()).decode()
    content = [{"type": "image_url", "image_url": {"url": "data:image/png;base64," + data}},
               {"type": "text", "text": "What is in the picture?"}]
    return {"messages": [{"role": "user", "content": content}], "max_tokens": 8, "temperature": 0, "logprobs": True}


class Test(unittest.TestCase):
    def serve(self, model, device, *options):
        s = start(model, device, *options)
        self.addCleanup(lambda: s.proc.poll() is None and s.close())
        return s

    def test_the_processors_bytes(self):
        with tempfile.TemporaryDirectory() as kept:
            s = self.serve(TINY, "cpu", "--prompt-cache-dir", kept)
            want = [said(s.post(CHAT, a)) for a in ASKS]
            s.until("all is written", disk_pending=0, disk_queue_bytes=0)
            s.close()
            s = self.serve(TINY, DEVICE, "--prompt-cache-dir", kept)
            self.assertIn("device: " + DEVICE.split(":")[0], s.text())
            for a, w in zip(ASKS, want):
                reply = s.post(CHAT, a)
                self.assertEqual(said(reply), w)
                self.assertGreater(reply.json()["usage"]["prompt_tokens_details"]["cached_tokens"], 0)
            s.close()
        s = self.serve(TINY, DEVICE, "--prompt-cache-bytes", "0")
        got = [None] * len(ASKS)

        def one(i):
            got[i] = said(s.post(CHAT, ASKS[i]))

        threads = [threading.Thread(target=one, args=(i,)) for i in range(len(ASKS))]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        self.assertEqual(got, want)
        s.close()

    def test_some_layers(self):
        """The first layers on the device, the rest on the processor: it goes on from what the processor kept, and begins cold."""
        said_by = []
        with tempfile.TemporaryDirectory() as kept:
            for device in "cpu", DEVICE + ",3":
                s = self.serve(TINY, device, "--prompt-cache-dir", kept)
                replies = [s.post(CHAT, a) for a in ASKS]
                said_by.append([said(r) for r in replies])
                s.until("all is written", disk_pending=0, disk_queue_bytes=0)
                if device != "cpu":
                    self.assertIn("for 3 layers, then", s.text())
                    for r in replies:
                        self.assertGreater(r.json()["usage"]["prompt_tokens_details"]["cached_tokens"], 0)
                s.close()
        s = self.serve(TINY, DEVICE + ",5", "--prompt-cache-bytes", "0")
        said_by.append([said(s.post(CHAT, a)) for a in ASKS])
        s.close()
        self.assertEqual(said_by[1], said_by[0])
        self.assertEqual(said_by[2], said_by[0])

    def test_few_bits(self):
        """Keys and values of 3.5 bits are rotated; the device goes on from what the processor wrote."""
        said_by = []
        with tempfile.TemporaryDirectory() as kept:
            for device, bits in (("cpu", "3.5"), (DEVICE, "3.5"), ("cpu", "4")):
                s = self.serve(TINY, device, "--kv-bits", bits, "--prompt-cache-dir", kept)
                replies = [s.post(CHAT, a) for a in ASKS]
                said_by.append([said(r) for r in replies])
                if device == DEVICE:
                    for r in replies:
                        self.assertGreater(r.json()["usage"]["prompt_tokens_details"]["cached_tokens"], 0)
                s.until("all is written", disk_pending=0, disk_queue_bytes=0)
                s.close()
        self.assertEqual(said_by[1], said_by[0])
        self.assertNotEqual(said_by[2], said_by[0])

    def test_adapters(self):
        """One request with an adapter, one with two, one with none, in one step."""
        with tempfile.TemporaryDirectory() as folder:
            options = []
            for i, name in enumerate(("one", "two")):
                adapter(TINY, os.path.join(folder, name), i)
                options += ["--lora", "%s=%s" % (name, os.path.join(folder, name))]
            both = [{"id": 0, "scale": 0.5}, {"id": 1, "scale": 1}]
            asks = [ask("Is Lima larger than Oslo?", model="one"), ask("Is Lima larger than Oslo?", lora=both),
                    ask("Is Lima larger than Oslo?", lora=[])]
            answers = []
            for device in "cpu", DEVICE:
                s = self.serve(TINY, device, *options)
                got = [None] * len(asks)

                def one(i):
                    got[i] = said(s.post(CHAT, asks[i]))

                threads = [threading.Thread(target=one, args=(i,)) for i in range(len(asks))]
                for t in threads:
                    t.start()
                for t in threads:
                    t.join()
                s.close()
                answers.append(got)
        self.assertEqual(answers[1], answers[0])
        self.assertEqual(len({json.dumps(a) for a in answers[0]}), 3)

    def test_a_quantised_file(self):
        """Q4_K_M of this model has Q4_K, Q5_0, Q5_1, Q6_K and Q8_0."""
        with tempfile.TemporaryDirectory() as folder:
            model = os.path.join(folder, "tiny-Q4_K_M.gguf")
            subprocess.run([WEFT, "quantize", TINY, "--type", "Q4_K_M", "--out", model], check=True, capture_output=True)
            got = []
            for device in "cpu", DEVICE:
                s = self.serve(model, device)
                got.append([said(s.post(CHAT, a)) for a in ASKS])
                s.close()
            self.assertEqual(got[1], got[0])

    def test_mixtures(self):
        """A folder without a tokenizer gets one of letters: prompts are ids."""
        prompt = [(7 * i + 3) % 60 for i in range(30)]
        letters = [["<unk>", 0.0]] + [[chr(0x4e00 + i), -1.0] for i in range(511)]
        said = {}
        with tempfile.TemporaryDirectory() as folder:
            for name in os.listdir(MIXTURE):
                os.symlink(os.path.join(MIXTURE, name), os.path.join(folder, name))
            with open(os.path.join(folder, "tokenizer.json"), "w") as f:
                json.dump({"version": "1.0", "added_tokens": [], "decoder": {"type": "Fuse"},
                           "model": {"type": "Unigram", "unk_id": 0, "vocab": letters, "byte_fallback": False}}, f)
            for device in ("cpu", DEVICE, DEVICE + ",experts"):
                s = self.serve(folder, device)
                said[device] = [s.post("/v1/completions", {"prompt": prompt[:n], "max_tokens": 8, "temperature": 0,
                                                           "ignore_eos": True, "logprobs": 3}) for n in (30, 3)]
                said[device] = [(r.status, r.json().get("choices")) for r in said[device]]
                if device.endswith("experts"):
                    self.assertIn(", experts on ", s.text())
                    self.assertIn("of the device's memory, ", s.text())
                s.close()
        self.assertEqual(said[DEVICE], said["cpu"])
        self.assertEqual(said[DEVICE + ",experts"], said["cpu"])
        self.assertEqual([status for status, _ in said["cpu"]], [200, 200])

    def test_images(self):
        s = self.serve(EYES, "cpu")
        want = said(s.post(CHAT, picture()))
        s.close()
        s = self.serve(EYES, DEVICE)
        self.assertEqual(said(s.post(CHAT, picture())), want)
        s.close()

    def test_a_part_that_fits(self):
        """What the device cannot have, the processor computes: layers, or experts where those are most."""
        few = ("--kv-bytes", "0", "--parallel", "1", "--ctx-size", "512")
        said_by = []
        for device in "cpu", DEVICE + ",auto,memory=12M", DEVICE + ",memory=20G":
            s = self.serve(TINY, device, *few)
            said_by.append([said(s.post(CHAT, a)) for a in ASKS])
            text = s.text()
            s.close()
            if "auto" in device:
                self.assertRegex(text, r"device: opencl has [1-7] of 8 layers, [1-9] MB of weights, for opencl may give 12 MB, and .* needs")
                self.assertIn("of the device's memory, 12 MB: weights", text)
            else:
                self.assertNotIn(" of 8 layers", text)
        self.assertEqual(said_by[1], said_by[0])
        self.assertEqual(said_by[2], said_by[0])

    def test_memory_of_two(self):
        """The plan has a column for each memory; keys, values and states lie with their layers, and are counted there."""
        def plan(device, *options):
            p = subprocess.run([WEFT, "inspect", "--memory", "--device", device, "--parallel", "4", "--kv-bytes", "24M", *options, TINY],
                               capture_output=True, text=True)
            self.assertEqual(p.returncode, 0, p.stderr)
            parts = re.findall(r"^  (\S.{15}) +([0-9.]+) MB(?: +([0-9.]+) MB)?", p.stdout, re.M)
            return {name.strip(): (float(here), float(there or 0)) for name, here, there in parts}, p.stdout
        alone, text = plan("cpu")
        self.assertNotIn("device", text)
        few, text = plan(DEVICE + ",2")
        self.assertRegex(text, "machine +device")
        most, _ = plan(DEVICE + ",6")
        whole, _ = plan(DEVICE)
        for part in "keys and values", "states":
            for p in few, most, whole:
                self.assertGreaterEqual(sum(p[part]), alone[part][0])
            self.assertLess(few[part][1], most[part][1])
            self.assertGreater(few[part][0], most[part][0])
            self.assertEqual(whole[part][0], 0)
        self.assertEqual(few["keys and values"][0], alone["keys and values"][0])  # attention is in the fourth layer and the eighth
        self.assertAlmostEqual(few["weights"][0] + few["weights"][1] / 9 * 8, alone["weights"][0], delta=0.2)
        self.assertEqual(few["step"][0], few["step"][1])
        self.assertEqual(few["preempted"][1], 0)
        p = subprocess.run([WEFT, "run", "--device", DEVICE + ",6", "--kv-bytes", "3G", "-p", "x", TINY], capture_output=True, text=True,
                           env=dict(os.environ, POCL_MEMORY_LIMIT="1"))
        self.assertEqual(p.returncode, 1, p.stderr)
        self.assertRegex(p.stderr, "the device has [0-9]+ MB left for its keys and values")

    def test_refusals(self):
        for device, why in ((DEVICE.split(":")[0] + ":15", "15 is asked for"), ("gpu", "none of cpu, cuda:N, opencl:N"),
                            (DEVICE + ":x", "none of cpu"), (DEVICE + ",x", "not a number of layers"),
                            ("cpu,3", "computes all of a model"), ("cpu,experts", "computes all of a model"),
                            (DEVICE + ",experts", "has no mixtures of experts"), (DEVICE + ",expert", "nor 'experts'"), ("auto,3", "given already"),
                            (DEVICE + ",2,3", "given already"), (DEVICE + ",memory=x", "not a size"),
                            ("cpu,memory=1G", "--memory limits it"), (DEVICE + ",memory=1M", "may give 1 MB"),
                            (DEVICE + ",auto,memory=1M", "no part of it there would help")):
            p = subprocess.run([WEFT, "run", "--device", device, "-p", "x", TINY], capture_output=True, text=True)
            self.assertEqual(p.returncode, 1, p.stderr)
            self.assertIn(why, p.stderr)
            self.assertIn("--device " + device, p.stderr)
        with tempfile.TemporaryDirectory() as folder:
            ids = os.path.join(folder, "ids")
            with open(ids, "w") as f:
                f.write("[1, 2, 3]")
            for device in DEVICE, DEVICE + ",1":
                p = subprocess.run([WEFT, "logits", "--device", device, "--ids", ids, "--out", ids + ".out",
                                    os.path.join(MIXTURE, "../../deepseek4/hf-bf16")], capture_output=True, text=True)
                self.assertEqual(p.returncode, 1, p.stderr)
                self.assertRegex(p.stderr, f"--device {device}: .*several residual streams")
            p = subprocess.run([WEFT, "logits", "--device", DEVICE + ",experts", "--kv-bytes", "1500M", "--ids", ids, "--out",
                                ids + ".out", MIXTURE], capture_output=True, text=True,
                               env=dict(os.environ, POCL_MEMORY_LIMIT="1"))
            self.assertEqual(p.returncode, 1, p.stderr)
            self.assertIn("the device has ", p.stderr)
        p = subprocess.run([WEFT, "run", "--device", DEVICE, "-p", "x", "--lora", "nothing", TINY], capture_output=True,
                           text=True)
        self.assertEqual(p.returncode, 1, p.stderr)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1] + sys.argv[6:])
