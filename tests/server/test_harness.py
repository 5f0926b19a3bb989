"""A task as lm-evaluation-harness scores it through `weft serve`, and the same figures from `weft logits`: its requests
(local-completions: batches of token ids, or texts, with echo, logprobs 1 and max_tokens 1; rolling, a token that ends texts before all
of them; local-chat-completions: answers up to a stop), its sums and its accuracies, in our own words.  The task: facts of the bundled model, each with endings of others.
Run as: test_harness.py WEFT MODEL FACTS"""
import json
import math
import os
import sys
import unittest

from serverkit import Server, logits

WEFT, MODEL, FACTS = sys.argv[1:4]
QUICK = os.environ.get("WEFT_TEST_QUICK")
DELTA = 2e-5  # of a sum of some twenty: logarithms in single precision on one side, in double on the other

if not os.path.exists(os.path.join(MODEL, "model.safetensors")):
    print("skipped: %s has no model.safetensors" % MODEL)
    sys.exit(77)


def task(n):
    """Questions with four endings (or three, when two are the same) and which of them is right."""
    with open(FACTS) as f:
        facts = [json.loads(line) for line in f]
    out = []
    for i, fact in enumerate(facts[:n]):
        right = fact["expect"]
        wrong = [facts[(i + 7 * k) % len(facts)]["expect"] for k in (1, 2, 3)]
        choices = [right] + [w for w in wrong if w != right]
        turn = i % len(choices)
        choices = choices[turn:] + choices[:turn]
        out.append((fact["messages"][-1]["content"], choices, choices.index(right)))
    return out


class Scores:
    """Accuracies of a task from (sum of logarithms, greedy) of each ending."""

    def __init__(self, docs, scores):
        self.acc = self.acc_norm = 0
        for (_, choices, right), row in zip(docs, scores):
            sums = [s for s, _ in row]
            each = [s / len(c) for s, c in zip(sums, choices)]
            self.acc += sums.index(max(sums)) == right
            self.acc_norm += each.index(max(each)) == right
        self.acc /= len(docs)
        self.acc_norm /= len(docs)


class Harness(unittest.TestCase):
    def setUp(self):
        self.s = Server([WEFT, "serve", MODEL, "--port", "0", "--port-file", "{port_file}"])
        self.addCleanup(self.s.close)

    def rows(self, ids):
        """Logits of the tokens there are: behind them the head may have rows that none has, and that are never an answer."""
        n = self.s.ask("GET", "/tokenizer_info").json()["vocab_size"]
        return [row[:n] for row in logits(WEFT, MODEL, ids)]

    def encode(self, text):
        return self.s.post("/tokenize", {"prompt": text, "add_special_tokens": False}).json()["tokens"]

    def pairs(self, docs):
        """The ids of each question with each ending, and how many of them are the question's."""
        out = []
        for question, choices, _ in docs:
            n = len(self.encode(question))
            out.append([(self.encode(question + "\n" + c), n) for c in choices])
        return out

    def ask(self, prompt, part):
        """As local-completions asks, and what it makes of the reply."""
        r = self.s.post("/v1/completions", {"model": "default", "prompt": prompt, "temperature": 0,
                                            "max_tokens": 1, "logprobs": 1, "seed": 1234, "echo": True})
        self.assertEqual(r.status, 200, r.text())
        choices = sorted(r.json()["choices"], key=lambda c: c["index"])
        self.assertEqual(len(choices), len(part))
        for c, (ids, n) in zip(choices, part):
            own = c["logprobs"]["token_logprobs"]
            best = c["logprobs"]["top_logprobs"]
            self.assertEqual(len(own), len(ids) + 1)
            yield sum(own[n:-1]), all(o == max(b.values()) for o, b in zip(own[n:-1], best[n:-1]))

    def from_server(self, pairs):
        """Four prompts in a request."""
        flat = [p for row in pairs for p in row]
        scores = []
        for at in range(0, len(flat), 4):
            part = flat[at:at + 4]
            scores += self.ask([ids for ids, _ in part], part)
        scores.reverse()
        return [[scores.pop() for _ in row] for row in pairs]

    def score(self, ids, n):
        rows = self.rows(ids)
        total, greedy = 0.0, True
        for i in range(n, len(ids)):
            row = rows[i - 1]
            top = max(row)
            total += row[ids[i]] - top - math.log(math.fsum(math.exp(v - top) for v in row))
            greedy &= row[ids[i]] == top
        return total, greedy

    def from_logits(self, pairs):
        return [[self.score(*p) for p in row] for row in pairs]

    def test_multiple_choice(self):
        docs = task(4 if QUICK else 40)
        pairs = self.pairs(docs)
        got = self.from_server(pairs)
        some = slice(0, 4 if QUICK else 5)
        want = self.from_logits(pairs[some])
        for doc, a, b in zip(docs, got, want):
            for choice, (sum_a, greedy_a), (sum_b, greedy_b) in zip(doc[1], a, b):
                self.assertAlmostEqual(sum_a, sum_b, delta=DELTA, msg=choice)
                self.assertEqual(greedy_a, greedy_b, choice)
        a, b = Scores(docs[some], got[some]), Scores(docs[some], want)
        self.assertEqual((a.acc, a.acc_norm), (b.acc, b.acc_norm))
        whole = Scores(docs, got)
        print("multiple choice, %d questions: acc %.4f, acc_norm %.4f" % (len(docs), whole.acc, whole.acc_norm))
        # The figures can tell good from bad: neither guessing nor a score that forgot the question reaches them.
        self.assertGreater(whole.acc, 0.8)

    def test_texts(self):
        """A text of which every token counts (perplexities), and prompts that are sent as text instead of tokens."""
        end = self.encode(self.s.ask("GET", "/tokenizer_info").json()["eos_token"])
        for question, choices, right in task(2 if QUICK else 6):
            text = question + "\n" + choices[right]
            ids = self.encode(text)
            want = self.score(end + ids, len(end))
            (got, greedy), = self.ask([end + ids], [(end + ids, len(end))])
            self.assertAlmostEqual(got, want[0], delta=4 * DELTA, msg=text)     # of a sum of hundreds
            self.assertEqual(greedy, want[1])
            n = len(self.encode(question))
            self.assertEqual(list(self.ask(text, [(ids, n)])), list(self.ask([ids], [(ids, n)])))

    def test_answers(self):
        """generate_until: each token of an answer is the one that `weft logits` likes best at its place."""
        docs = task(4 if QUICK else 40)
        right = 0
        for i, (question, choices, k) in enumerate(docs):
            messages = [{"role": "user", "content": question}]
            r = self.s.post("/v1/chat/completions", {"model": "default", "messages": messages, "max_tokens": 60, "temperature": 0,
                                                     "stop": ["\n\n"], "seed": 1234, "logprobs": True})
            self.assertEqual(r.status, 200, r.text())
            choice = r.json()["choices"][0]
            right += choice["message"]["content"] == choices[k]
            if i >= (2 if QUICK else 6):
                continue
            prompt = self.encode(self.s.post("/apply-template", {"messages": messages}).json()["prompt"])
            said = [t["logprob"] for t in choice["logprobs"]["content"]]
            answer = self.encode(choice["message"]["content"])
            rows = self.rows(prompt + answer)
            for j, token in enumerate(answer):
                row = rows[len(prompt) + j - 1]
                top = max(row)
                self.assertEqual(row[token], top, (question, j))
                self.assertAlmostEqual(said[j], -math.log(math.fsum(math.exp(v - top) for v in row)), delta=DELTA)
        print("answers: exact_match %.4f" % (right / len(docs)))
        self.assertGreater(right, len(docs) / 2)

    def test_tokenizer_of_the_server(self):
        """The harness takes the server's tokenizer where both of these answer."""
        info = self.s.ask("GET", "/tokenizer_info").json()
        self.assertEqual(len(self.encode(info["eos_token"])), 1)
        self.assertIn("messages", info["chat_template"])
        text = "The capital of Peru, né?"
        self.assertEqual(self.s.post("/detokenize", {"tokens": self.encode(text)}).json()["prompt"], text)
        self.assertEqual(self.s.ask("GET", "/props").json()["chat_template"], info["chat_template"])


unittest.main(argv=sys.argv[:1], verbosity=2)
