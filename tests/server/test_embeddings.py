"""Vectors and scores over HTTP, of encoders and rerankers with random weights and reference vectors: WEFT GOLDEN.

Every API's shape; texts and pairs from strings to the reference's vectors; batches, order and neighbours change no bit.
"""
import base64
import json
import os
import struct
import sys
import threading
import unittest

from serverkit import Server

WEFT, GOLDEN = sys.argv[1], sys.argv[2]
BERT, CROSS, RERANKER = "bert", "bert_cross", "bge_reranker"


def tensors(name):
    with open(os.path.join(GOLDEN, name, "hf-bf16", "golden.safetensors"), "rb") as f:
        data = f.read()
    size = struct.unpack("<Q", data[:8])[0]
    out = {}
    for key, about in json.loads(data[8:8 + size]).items():
        if key != "__metadata__" and about["dtype"] == "F32":
            begin, end = about["data_offsets"]
            out[key] = struct.unpack("<%df" % ((end - begin) // 4), data[8 + size + begin:8 + size + end])
    return out


def about(name):
    with open(os.path.join(GOLDEN, name, "hf-bf16", "golden.json")) as f:
        return json.load(f)


def start(name, *more):
    return Server([WEFT, "serve", os.path.join(GOLDEN, name, "hf-bf16"), "--port", "0", "--port-file", "{port_file}",
                   "--device", "cpu", *ARITH, *more])


ARITH = ("--tune", "arith=f32")


class Case(unittest.TestCase):
    name = None

    @classmethod
    def setUpClass(cls):
        if cls.name:
            cls.s, cls.want, cls.about = start(cls.name), tensors(cls.name), about(cls.name)

    @classmethod
    def tearDownClass(cls):
        if cls.name:
            cls.s.close()

    def near(self, got, want, by=1e-5):
        self.assertEqual(len(got), len(want))
        for a, b in zip(got, want):
            self.assertAlmostEqual(a, b, delta=by)

    def good(self, path, body):
        r = self.s.post(path, body)
        self.assertEqual(r.status, 200, r.text()[:300])
        return r.json()

    def bad(self, path, body, words, status=400):
        r = self.s.post(path, body)
        self.assertEqual(r.status, status, r.text()[:300])
        self.assertIn(words, r.text())
        return r.json()

    def info(self):
        """TEI's /info: its length is the one that texts are held to."""
        r = self.s.ask("GET", "/info")
        self.assertEqual(r.status, 200, r.text())
        of = r.json()
        self.assertEqual((of["max_client_batch_size"], of["auto_truncate"]), (2048, True))
        self.assertGreater(of["max_input_length"], 0)
        return of


class Vectors(Case):
    name = BERT

    def texts(self):
        """Texts that are not empty, as clients send them: with their prompts in front."""
        for i, (text, prompt) in enumerate(zip(self.about["texts"], self.about["prompt_names"])):
            if text:
                yield i, (self.about["prompts"][prompt] if prompt else "") + text

    def test_reference(self):
        for i, text in self.texts():
            long = len(text) > 200
            if long:
                self.bad("/v1/embeddings", {"input": text}, "48 tokens")
            body = {"input": text, **({"truncate_prompt_tokens": -1} if long else {})}
            got = self.good("/v1/embeddings", body)["data"][0]["embedding"]
            self.near(got, self.want["embedding_%d" % i])
            self.near(self.good("/api/embed", {"input": text})["embeddings"][0], got, 0)
            self.near(self.good("/embed", {"inputs": text})[0], got, 0)
            self.near(self.good("/v1/embeddings", {"input": [self.about["ids"][i]]})["data"][0]["embedding"], got, 0)

    def test_prompts(self):
        i = self.about["prompt_names"].index("query")
        for path, body in (("/embed", {"inputs": "cats", "prompt_name": "query"}), ):
            self.near(self.good(path, body)[0], self.want["embedding_%d" % i])
        r = self.good("/v1/embeddings", {"input": "cats", "prompt_name": "query"})
        self.near(r["data"][0]["embedding"], self.want["embedding_%d" % i])
        r = self.good("/v2/embed", {"texts": ["cats"], "input_type": "search_query"})
        self.near(r["embeddings"]["float"][0], self.want["embedding_%d" % i])
        self.bad("/v1/embeddings", {"input": "cats", "prompt_name": "none"}, "prompt_name")

    def test_neighbours(self):
        """Alone, in one request, in any order and beside other clients: the same bytes."""
        texts = ["word " * (1 + 7 * k % 14) + "cats"[:1 + k % 4] for k in range(150)]
        alone = [self.good("/v1/embeddings", {"input": t, "encoding_format": "base64"})["data"][0]["embedding"] for t in texts[:40]]
        got = [None] * 3

        def ask(k):
            order = texts[::-1] if k % 2 else texts
            data = self.s.post("/v1/embeddings", {"input": order, "encoding_format": "base64", "user": str(k)}).json()["data"]
            got[k] = [d["embedding"] for d in data][::-1 if k % 2 else 1]

        threads = [threading.Thread(target=ask, args=(k,)) for k in range(3)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        for one in got:
            self.assertEqual(one[:40], alone)
            self.assertEqual(one, got[0])

    def test_dimensions(self):
        whole = self.good("/v1/embeddings", {"input": "cats"})["data"][0]["embedding"]
        cut = self.good("/v1/embeddings", {"input": "cats", "dimensions": 8})["data"][0]["embedding"]
        length = sum(x * x for x in whole[:8]) ** 0.5
        self.near(cut, [x / length for x in whole[:8]], 1e-6)
        self.near(self.good("/api/embed", {"input": "cats", "dimensions": 8})["embeddings"][0], cut, 0)
        self.bad("/v1/embeddings", {"input": "cats", "dimensions": 49}, "48 numbers")

    def test_cut(self):
        """What is cut off a text, or off ids, changes nothing."""
        def ask(text, **more):
            return self.good("/v1/embeddings", {"input": text, **more})["data"][0]["embedding"]

        ids = [5 + k % 20 for k in range(30)]
        self.assertEqual(ask(ids, truncate_prompt_tokens=7), ask(ids[:7]))
        self.assertEqual(ask(ids, truncate_prompt_tokens=7, truncation_side="left"), ask(ids[-7:]))
        self.assertNotEqual(ask(ids[:7]), ask(ids[-7:]))
        long, other = "word " * 40, "cats and hello " * 20
        for side, same, differ in (("right", lambda x: long + x, lambda x: x + long), ("left", lambda x: x + long, lambda x: long + x)):
            cut = {"truncate_prompt_tokens": 12, "truncation_side": side}
            self.assertEqual(ask(same("is"), **cut), ask(same(other), **cut))
            self.assertNotEqual(ask(differ("is "), **cut), ask(differ(other), **cut))

    def test_shapes(self):
        whole = self.good("/v1/embeddings", {"input": ["cats", "hello"]})
        want = [d["embedding"] for d in whole["data"]]
        self.assertEqual(self.good("/embed", {"inputs": ["cats", "hello"]}), want)
        rows = self.good("/embed_all", {"inputs": "cats"})[0]
        self.near(rows[0], self.want["hidden_0"][:0] or rows[0], 0)
        self.assertEqual(len(rows[0]), 48)
        length = sum(x * x for x in rows[0]) ** 0.5          # cls: the first row
        self.near([x / length for x in rows[0]], want[0], 1e-6)
        self.near(self.good("/embedding", {"content": "cats"})[0]["embedding"][0], want[0], 0)
        raw = self.good("/embedding", {"input": "cats", "embd_normalize": -1})[0]["embedding"][0]
        self.near(raw, rows[0], 0)
        top = self.good("/embedding", {"input": "cats", "embd_normalize": 0})[0]["embedding"][0]
        self.assertAlmostEqual(max(abs(x) for x in top), 32760, delta=0.1)
        self.near(self.good("/v1/embeddings", {"input": "cats", "normalize": False})["data"][0]["embedding"], raw, 0)
        self.assertEqual(self.good("/api/embeddings", {"prompt": "cats"}), {"embedding": raw})
        r = self.good("/pooling", {"input": ["cats"], "task": "token_embed"})
        self.assertEqual((r["data"][0]["object"], len(r["data"][0]["data"])), ("pooling", len(rows)))
        self.assertEqual(self.good("/pooling", {"input": "cats"})["data"][0]["data"], want[0])
        r = self.good("/v2/embed", {"texts": ["cats"], "embedding_types": ["float", "int8", "uint8", "binary", "ubinary", "base64"]})
        e = r["embeddings"]
        self.assertEqual((e["float"][0], r["texts"]), (want[0], ["cats"]))
        self.near(struct.unpack("<48f", base64.b64decode(e["base64"][0])), want[0], 1e-7)
        self.assertEqual([x + 128 for x in e["binary"][0]], e["ubinary"][0])
        self.assertEqual([x + 128 for x in e["int8"][0]], e["uint8"][0])
        bits = [x >> (7 - k) & 1 for x in e["ubinary"][0] for k in range(8)]
        self.assertEqual(bits, [int(x >= 0) for x in want[0]])
        self.assertEqual(self.good("/similarity", {"inputs": {"source_sentence": "cats", "sentences": ["cats"]}}), [1])
        score = self.good("/score", {"text_1": "cats", "text_2": ["hello", "cats"]})
        self.assertEqual([d["index"] for d in score["data"]], [0, 1])
        self.assertAlmostEqual(score["data"][1]["score"], 1, delta=1e-6)

    def test_many(self):
        r = self.good("/v1/embeddings", {"input": ["cats"] * 2048})
        self.assertEqual((len(r["data"]), r["data"][2047]["index"]), (2048, 2047))
        self.assertEqual(r["data"][0]["embedding"], r["data"][2047]["embedding"])
        self.bad("/v1/embeddings", {"input": ["cats"] * 2049}, "2049 texts")

    def test_info(self):
        self.assertEqual(self.info()["model_type"], {"embedding": {"pooling": "cls"}})

    def test_what_it_cannot(self):
        talk = {"messages": [{"role": "user", "content": "x"}]}
        for path, body in (("/v1/chat/completions", talk), ("/v1/completions", {"prompt": "x"}), ("/v1/messages", dict(talk, max_tokens=1)),
                           ("/v1/responses", {"input": "x"}), ("/api/chat", talk), ("/api/generate", {"prompt": "x"})):
            self.bad(path, body, "writes no text")
        for path, body in (("/predict", {"inputs": "x"}), ("/classify", {"input": "x"})):
            self.bad(path, body, "cannot give scores of labels")
        self.assertEqual(self.bad("/predict", {"inputs": "x"}, "labels")["error_type"], "Validation")

    def test_errors(self):
        for path, body, words in (
                ("/v1/embeddings", {"input": []}, "input is empty"), ("/v1/embeddings", {"input": ["a", ""]}, "input[1]"),
                ("/v1/embeddings", {"input": ["a", 5]}, "input[1]"), ("/v1/embeddings", {"input": [[0, 999]]}, "input[0][1]"),
                ("/embed", {}, "inputs is missing"), ("/v2/embed", {"texts": []}, "texts"),
                ("/v2/embed", {"texts": ["a"], "embedding_types": ["int4"]}, "embedding_types"),
                ("/score", {"text_1": ["a", "b"], "text_2": ["a", "b", "c"]}, "one, or as many"),
                ("/similarity", {"inputs": {"sentences": ["a"]}}, "source_sentence"),
                ("/rerank", {"query": "a"}, "documents"), ("/rerank", {"documents": ["a"]}, "query")):
            self.bad(path, body, words)


class Scores(Case):
    name = RERANKER

    def test_reference(self):
        for i, (query, text) in enumerate(self.about["pairs"]):
            score, logit = self.want["score_%d" % i][0], self.want["logits_%d" % i][0]
            for path in ("/rerank", "/v1/rerank", "/v2/rerank", "/reranking", "/v1/reranking"):
                r = self.good(path, {"query": query, "documents": [text]})
                self.assertAlmostEqual(r["results"][0]["relevance_score"], score, delta=1e-5)
            self.assertAlmostEqual(self.good("/rerank", {"query": query, "texts": [text], "raw_scores": True})[0]["score"], logit, delta=1e-5)
            r = self.good("/score", {"queries": query, "documents": text, "truncate_prompt_tokens": -1})
            self.assertAlmostEqual(r["data"][0]["score"], score, delta=1e-5)
            self.assertAlmostEqual(self.good("/predict", {"inputs": [query, text]})[0]["score"], score, delta=1e-5)

    def test_order(self):
        documents = [text for _, text in self.about["pairs"]] + ["cats", "cats"]
        r = self.good("/v1/rerank", {"query": "cats", "documents": documents, "return_documents": True})
        scores = [x["relevance_score"] for x in r["results"]]
        self.assertEqual(scores, sorted(scores, reverse=True))
        self.assertEqual(sorted(x["index"] for x in r["results"]), list(range(len(documents))))
        for x in r["results"]:
            self.assertEqual(x["document"], {"text": documents[x["index"]]})
            alone = self.good("/v1/rerank", {"query": "cats", "documents": [{"text": documents[x["index"]]}]})
            self.assertEqual(alone["results"][0]["relevance_score"], x["relevance_score"])
        at = [x["index"] for x in r["results"]]
        self.assertLess(at.index(len(documents) - 2), at.index(len(documents) - 1))      # equal: the lower index first
        few = self.good("/v2/rerank", {"query": "cats", "documents": documents, "top_n": 2})
        self.assertEqual([x["index"] for x in few["results"]], at[:2])
        self.assertNotIn("document", few["results"][0])
        bare = self.good("/rerank", {"query": "cats", "texts": documents, "return_text": True})
        self.assertEqual([(x["index"], x["text"]) for x in bare], [(i, documents[i]) for i in at])

    def test_errors(self):
        for body, words in (({"query": "a", "documents": []}, "documents"), ({"query": ["a"], "documents": ["b"]}, "query must be"),
                            ({"query": "a", "documents": ["b", 5]}, "documents[1]"), ({"query": "a", "texts": "b"}, "texts"),
                            ({"query": "a", "documents": ["b"], "top_n": -1}, "top_n"),
                            ({"query": "a", "documents": ["word " * 200], "truncate": False}, "too long")):
            self.bad("/rerank", body, words)
        self.bad("/v1/embeddings", {"input": "a"}, "cannot give a vector")
        self.bad("/v1/chat/completions", {"messages": [{"role": "user", "content": "x"}]}, "writes no text")


class Labels(Case):
    name = CROSS

    def test_info(self):
        self.assertEqual(self.info()["model_type"], {"reranker": {"id2label": {"0": "LABEL_0"}, "label2id": {"LABEL_0": 0}}})

    def test_reference(self):
        """The folder says that its scores are the logits."""
        for i, pair in enumerate(self.about["pairs"]):
            want = self.want["logits_%d" % i][0]
            self.assertAlmostEqual(self.good("/predict", {"inputs": [pair]})[0][0]["score"], want, delta=1e-5)
            self.assertAlmostEqual(self.good("/rerank", {"query": pair[0], "documents": [pair[1]]})["results"][0]["relevance_score"],
                                   want, delta=1e-5)

    def test_shapes(self):
        r = self.good("/classify", {"input": ["a", "b"]})
        self.assertEqual([(d["index"], d["label"], d["num_classes"]) for d in r["data"]], [(0, "LABEL_0", 1), (1, "LABEL_0", 1)])
        one = self.good("/predict", {"inputs": "a"})
        self.assertEqual([x["label"] for x in one], ["LABEL_0"])
        self.assertEqual(self.good("/predict", {"inputs": [["a"], ["a"]]}), [one, one])
        self.bad("/predict", {"inputs": [["a", "b", "c"]]}, "inputs[0]")


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
