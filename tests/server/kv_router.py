"""What a router makes of kv-events: the blocks that a server has, and what it predicts for a prompt.  For tests and bench/."""
import hashlib
import random
import time

import msgpack
import zmq

PATIENCE = 60
END = (2**64 - 1).to_bytes(8, "big")
STORED = ("block_hashes", "parent_block_hash", "token_ids", "block_size", "lora_id", "medium", "lora_name", "extra_keys", "group_idx",
          "kv_cache_spec_kind")
FIELDS = {"BlockStored": STORED, "BlockRemoved": ("block_hashes", "medium", "group_idx"), "AllBlocksCleared": ()}


def name_of(parent, tokens):
    h = hashlib.sha256(parent.to_bytes(8, "little"))
    for t in tokens:
        h.update(t.to_bytes(4, "little"))
    return int.from_bytes(h.digest()[:8], "big") or 1


def event_of(e):
    """An event as a map, whichever form it came in."""
    if isinstance(e, dict):
        assert tuple(e)[1:] == FIELDS[e["type"]], e
        return e
    assert len(e) == 1 + len(FIELDS[e[0]]), e
    return {"type": e[0], **dict(zip(FIELDS[e[0]], e[1:]))}


class Router:
    def __init__(self, events, replay, topic="kv-events"):
        self.ctx, self.replay_at, self.topic = zmq.Context(), replay, topic.encode()
        self.sub = self.ctx.socket(zmq.SUB)
        self.sub.setsockopt(zmq.SUBSCRIBE, self.topic)
        self.sub.setsockopt(zmq.RCVHWM, 0)
        self.sub.connect(events)
        self.next, self.replayed, self.cleared = 0, 0, 0
        self.blocks, self.size = {}, 0      # name: (parent, tokens)
        self.known = {}                     # (parent, tokens): name, as consumers find them that know no names

    def close(self):
        self.ctx.destroy(linger=0)

    def apply(self, seq, payload):
        assert seq == self.next, (seq, self.next)
        self.next += 1
        ts, events, rank = msgpack.unpackb(payload, strict_map_key=False)
        assert abs(ts - time.time()) < 3600 and rank == 0
        for e in map(event_of, events):
            if e["type"] == "AllBlocksCleared":
                self.cleared += 1
                self.blocks, self.known = {}, {}
            elif e["type"] == "BlockRemoved":
                for name in e["block_hashes"]:
                    del self.known[self.blocks.pop(name)]    # a KeyError: it was not there
            else:
                self.store(e)

    def store(self, e):
        self.size, parent = e["block_size"], e["parent_block_hash"]
        names, tokens = e["block_hashes"], e["token_ids"]
        assert len(tokens) == len(names) * self.size and e["extra_keys"] == [None] * len(names), e
        assert (e["medium"], e["lora_id"], e["lora_name"], e["group_idx"], e["kv_cache_spec_kind"]) == ("GPU", None, None, 0, "full_attention")
        for i, name in enumerate(names):
            block = (parent, tuple(tokens[i * self.size:(i + 1) * self.size]))
            assert name == name_of(parent or 0, block[1]) and name not in self.blocks
            self.blocks[name], self.known[block] = block, name
            parent = name

    def replay(self, start):
        """All that the server remembers from a batch on."""
        s = self.ctx.socket(zmq.DEALER)
        s.connect(self.replay_at)
        s.send_multipart([b"", start.to_bytes(8, "big")])
        out = []
        while True:
            assert s.poll(PATIENCE * 1000), "no end of a replay"
            empty, seq, payload = s.recv_multipart()
            assert empty == b""
            if seq == END:
                assert payload == b""
                s.close(0)
                return out
            out.append((int.from_bytes(seq, "big"), payload))

    def sync(self, n):
        """Reads until n batches are known; those that were missed are replayed."""
        while self.next < n:
            if not self.sub.poll(200):
                for seq, payload in self.replay(self.next):
                    self.replayed += 1
                    self.apply(seq, payload)
                continue
            topic, seq, payload = self.sub.recv_multipart()
            seq = int.from_bytes(seq, "big")
            assert topic == self.topic
            if seq > self.next:
                for missed, p in self.replay(self.next):
                    self.replayed += 1
                    if missed < seq:
                        self.apply(missed, p)
            if seq == self.next:
                self.apply(seq, payload)

    def predict(self, tokens):
        """Tokens that a request finds: up to the deepest block that is there; and by going from block to block."""
        deepest = chain = parent = 0
        whole = True
        for end in range(self.size, len(tokens), self.size) if self.size else ():    # the last token is computed in any case
            block = tuple(tokens[end - self.size:end])
            whole = whole and (parent or None, block) in self.known
            parent = name_of(parent, block)
            if parent in self.blocks:
                deepest = end
            if whole:
                chain = end
        return deepest, chain


def settle(server, router, body):
    """Waits until the router knows all that the server's engine did: an explanation is given between two of its steps."""
    r = server.post("/v1/cache/explain", body)
    assert r.status == 200, r.text()
    end = time.monotonic() + PATIENCE
    while True:
        m = server.metrics()
        if m["weft_kv_events_waiting"] == 0:
            break
        assert time.monotonic() < end
    router.sync(int(m["weft_kv_events_total"]))
    return r.json()


CHAT = "/v1/chat/completions"
WORDS = "is Rome large old near river north market bridge why when little green about harbour city winter train".split()


class Talks:
    """Bodies of conversations under a few system prompts: some go on, some ask again, some are edited, some are new."""

    def __init__(self, seed, alive=24):
        self.rng, self.alive, self.talks = random.Random(seed), alive, []

    def words(self, n):
        return " ".join(self.rng.choice(WORDS) for _ in range(n))

    def next(self):
        """A conversation whose turn it is, and the request's body."""
        rng = self.rng
        if len(self.talks) < self.alive or rng.random() < 0.08:
            k = rng.randrange(6)
            self.talks.append([{"role": "system", "content": "Answer in few words. " * (3 + 9 * k) + "Group %d." % k}])
            del self.talks[:-self.alive]
        t = self.talks[min(len(self.talks) - 1, int(rng.expovariate(0.15)))] if rng.random() < 0.7 else rng.choice(self.talks)
        how = rng.random()
        if len(t) > 2 and how < 0.08:
            t.pop()                                                     # the last answer is asked for again
        elif len(t) > 2 and how < 0.14:
            t[-2]["content"] = self.words(rng.randrange(3, 30))         # the last question is edited
            t.pop()
        elif len(t) > 2 and how < 0.17:
            del t[rng.randrange(1, len(t)) // 2 * 2 + 1:]               # back to an earlier turn
            t.append({"role": "user", "content": self.words(rng.randrange(3, 60))})
        else:
            t.append({"role": "user", "content": self.words(rng.randrange(3, 60))})
        while t[-1]["role"] != "user":
            t.pop()
        return t, {"messages": t, "max_tokens": rng.choice((1, 8, 30, 90)), "temperature": 0, "ignore_eos": True}


class Score:
    def __init__(self):
        self.n = self.false = self.error = self.chain_false = self.chain_error = self.actual = self.prompt = self.worst = self.seen = 0
        self.short = 0      # requests that are not judged: the machine's memory ran short between the look and the answer

    def add(self, predicted, chain, actual, prompt):
        self.n += 1
        self.false += actual < predicted
        self.chain_false += actual < chain
        self.error += abs(actual - predicted)
        self.chain_error += abs(actual - chain)
        self.worst = max(self.worst, abs(actual - predicted))
        self.actual += actual
        self.prompt += prompt
        self.seen += predicted > 0

    def text(self):
        return ("%d requests: %d false hits, mean error %.1f tokens (worst %d); block by block: %d false hits, %.1f; "
                "%.0f %% of prompts' tokens were found, %d requests predicted to find any, %d not judged" % (
                    self.n, self.false, self.error / max(1, self.n), self.worst, self.chain_false, self.chain_error / max(1, self.n),
                    100 * self.actual / max(1, self.prompt), self.seen, self.short))


def predicted(server, router, talks, score):
    """One request, looked up before it is sent.  The server logs warnings."""
    t, body = talks.next()
    ids = server.post(CHAT + "/render", body).json()["token_ids"]
    short = server.text().count("memory is short")
    settle(server, router, body)
    predicted, chain = router.predict(ids)
    r = server.post(CHAT, body)
    assert r.status == 200, r.text()
    usage = r.json()["usage"]
    assert usage["prompt_tokens"] == len(ids), (usage, len(ids))
    if server.text().count("memory is short") > short:
        score.short += 1
    else:
        score.add(predicted, chain, usage["prompt_tokens_details"]["cached_tokens"], len(ids))
    t.append({"role": "assistant", "content": r.json()["choices"][0]["message"]["content"] or ""})
    if len(ids) > 1500:
        talks.talks.remove(t)
