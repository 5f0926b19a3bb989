"""A server on a tiny folder of each family answers over the API: WEFT GOLDEN_FOLDER...

The folders have no tokenizer; a vocabulary of letters is put beside their files, so prompts are ids and answers letters.
Asked twice, the second time from the cache, and beside another request, it says the same.
"""
import glob
import json
import os
import sys
import tempfile
import threading
import unittest

from serverkit import Server

WEFT, ROOTS = sys.argv[1], sys.argv[2:]
LETTERS = [chr(c) for c in list(range(33, 127)) + list(range(161, 173)) + list(range(174, 256))]


def tokenizer(rows):
    pieces = (LETTERS + [a + b for a in LETTERS for b in LETTERS[:8]])[:rows - 1]
    return {"version": "1.0", "truncation": None, "padding": None, "added_tokens": [], "normalizer": None,
            "pre_tokenizer": None, "post_processor": None, "decoder": {"type": "Fuse"},
            "model": {"type": "Unigram", "unk_id": 0, "vocab": [["<unk>", 0.0]] + [[p, -1.0] for p in pieces],
                      "byte_fallback": False}}


def folder_with_tokenizer(golden, to):
    for name in os.listdir(golden):
        os.symlink(os.path.join(golden, name), os.path.join(to, name))
    with open(os.path.join(golden, "config.json")) as f:
        config = json.load(f)
    rows = config.get("text_config", config).get("vocab_size", 256)
    with open(os.path.join(to, "tokenizer.json"), "w") as f:
        json.dump(tokenizer(rows), f)


class Families(unittest.TestCase):
    def answers(self, golden):
        with tempfile.TemporaryDirectory() as to:
            folder_with_tokenizer(os.path.abspath(golden), to)
            server = Server([WEFT, "serve", to, "--port", "0", "--port-file", "{port_file}", "--threads", "2",
                             "--ctx-size", "256"])
            try:
                self.ask(server)
            finally:
                server.close()

    def ask(self, server):
        prompt = [(7 * i + 3) % 60 for i in range(40)]

        def one(ids, out):
            out.append(server.ask("POST", "/v1/completions", {"prompt": ids, "max_tokens": 8, "temperature": 0,
                                                              "ignore_eos": True}))
        first, beside = [], []
        one(prompt, first)
        others = [threading.Thread(target=one, args=(ids, beside)) for ids in (prompt, prompt[:25], prompt)]
        for t in others:
            t.start()
        for t in others:
            t.join()
        status, said = first[0].status, json.loads(first[0].body)
        self.assertEqual(status, 200, said)
        self.assertEqual(said["usage"]["completion_tokens"], 8)
        text = said["choices"][0]["text"]
        self.assertTrue(text)
        texts = [json.loads(r.body)["choices"][0]["text"] for r in beside]
        self.assertGreaterEqual(texts.count(text), 2, (text, texts))


def main():
    # What begins with an underscore is no family: blocks, pictures, draft heads.
    folders = sorted(f for root in ROOTS for f in glob.glob(root + "/[!_]*/*") if os.path.exists(f + "/config.json"))
    for f in folders:
        name = "test_" + "_".join(f.split("/")[-2:]).replace("-", "_")
        setattr(Families, name, lambda self, f=f: self.answers(f))
    sys.argv = sys.argv[:1]
    assert folders, "no folders under %s" % ROOTS
    unittest.main(verbosity=1)


if __name__ == "__main__":
    main()
