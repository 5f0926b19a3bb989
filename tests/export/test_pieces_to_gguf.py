#!/usr/bin/env python3
"""weft quantize of folders whose tokenizer is of SentencePiece's kinds: the GGUF file reads any text as the folder does, with the
same template, the logits are the same bits, and what a GGUF file cannot say is refused by name.

Vocabularies are made here, of the text that the bundled model is measured with."""
import itertools, json, os, random, subprocess, sys, tempfile

import pieceskit as kit
from exportkit import Gguf, check, failures, models, run

same_tokens = sys.argv[4]
quick = "WEFT_TEST_QUICK" in os.environ
MARK, many, rnd = kit.MARK, 300 if quick else 4000, random.Random(5)
source = open(os.path.join(models, "../tools/train/eval/held-out.txt"), "rb").read()[:60000].decode(errors="ignore")
chars, made = kit.joined(source[:8000], 200)
chars = sorted(set(chars) | set("abcdefghijklmnopqrstuvwxyz .,-" + MARK) - {" "})

with tempfile.TemporaryDirectory() as tmp:
    at = lambda name: os.path.join(tmp, name)
    ids = at("ids.json")
    json.dump([(7 * i * i + 3 * i) % 400 for i in range(64)], open(ids, "w"))
    count = itertools.count()
    rows = 704
    weights = at("weights")
    os.mkdir(weights)
    kit.write_model(weights, rows)

    def folder(tokenizer, config=None):
        path = at(f"f{next(count)}")
        os.mkdir(path)
        os.symlink(os.path.join(weights, "model.safetensors"), os.path.join(path, "model.safetensors"))
        os.symlink(os.path.join(weights, "config.json"), os.path.join(path, "config.json"))
        with open(os.path.join(path, "chat_template.jinja"), "w") as f:
            f.write("{{ bos_token }}{% for m in messages %}<turn>{{ m.role }}\n{{ m.content }}</s>{% endfor %}")
        for name, value in (("tokenizer.json", tokenizer), ("tokenizer_config.json", config or {"bos_token": "<s>", "eos_token": "</s>"})):
            with open(os.path.join(path, name), "w") as f:
                json.dump(value, f)
        return path

    def write(path, kind="Q8_0"):
        out = f"{path}-{kind}.gguf"
        return out, *run("quantize", path, "--type", kind, "--out", out)

    def alike(what, tokenizer, warned=None, trim=None, **keys):
        """The file of such a folder reads texts as the folder; keys: some of its pairs; trim: what it may read otherwise."""
        path = folder(tokenizer)
        out, code, _, err = write(path)
        check(code == 0 and (warned or "") in err and (warned or "readers of GGUF differ" not in err), f"{what}: {code} {err}")
        if code:
            return None
        p = subprocess.run([same_tokens, path, out], input=kit.texts(tokenizer, source, many, rnd, trim), capture_output=True, timeout=250)
        check(p.returncode == 0, f"{what}: {p.stdout.decode(errors='replace')} {p.stderr.decode()}")
        got = Gguf(out).pairs
        for key, value in keys.items():
            check(got.get("tokenizer.ggml." + key) == value, f"{what}: {key}: {got.get('tokenizer.ggml.' + key)}")
        return got

    def refused(what, tokenizer, config=None):
        path = folder(tokenizer, config)
        out, code, _, err = write(path)
        check(code == 1 and what in err and not os.path.exists(out), f"{what}: {code} {err}")

    # Pairs by scores: as Llama 2 and Mistral have them, and as Gemma has.
    llama = kit.pairs(chars, made)
    got = alike("a mark before every text", llama, model="llama", pre="default", add_space_prefix=True, add_bos_token=True, add_eos_token=False,
                bos_token_id=1, eos_token_id=2, unknown_token_id=0)
    types = got["tokenizer.ggml.token_type"]
    check(types[:6] == [2, 3, 3, 3, 6, 6] and types[-1] == 5 and types[260] == 1, f"types: {types[:8]}")
    check(got["tokenizer.ggml.tokens"][-1] == f"[PAD {rows - 1}]" and len(types) == rows, "rows of no token")
    scores = got["tokenizer.ggml.scores"]
    check(scores[260 : 260 + len(made)] == [-float(i) for i in range(len(made))], "scores are in the order of merges")
    gemma = kit.pairs(chars, made, prepend=False)
    gemma["pre_tokenizer"] = {"type": "Split", "pattern": {"String": " "}, "behavior": "MergedWithPrevious", "invert": False}
    alike("no mark", gemma, model="llama", add_space_prefix=False)
    space = {"type": "Metaspace", "replacement": MARK, "prepend_scheme": "never", "split": False}
    alike("Metaspace", dict(gemma, normalizer=None, pre_tokenizer=space), model="llama", add_space_prefix=False)
    alike("Metaspace that cuts", dict(gemma, normalizer=None, pre_tokenizer={"type": "Metaspace", "replacement": MARK, "prepend_scheme": "never"}),
          model="llama", add_space_prefix=False)
    first = dict(llama, normalizer=None, pre_tokenizer=dict(space, prepend_scheme="first"))
    alike("a mark before the first text", first, "U+2581 is put before a text also where a space begins it, and behind special tokens", "left",
          model="llama", add_space_prefix=True)
    text = dict(llama, added_tokens=llama["added_tokens"] + [kit.added(llama["model"]["vocab"][made[1]], made[1], False, lstrip=True)])
    refused_not = write(folder(text))
    check(refused_not[1] == 0 and "1 added tokens with lstrip" in refused_not[3], f"lstrip: {refused_not[1:]}")

    # Runs of spaces and ends of lines are added tokens too, as in Gemma; merges give the former, so they are ordinary.
    runs = [MARK * n for n in range(2, 9)]
    lines = ["\n" * n for n in range(2, 9)]
    long = kit.pairs(chars + ["\n"], runs + made, user=lines + runs, prepend=False)
    got = alike("runs", long, model="llama")
    types = dict(zip(got["tokenizer.ggml.tokens"], got["tokenizer.ggml.token_type"]))
    check(types[MARK * 3] == 1 and types["\n\n"] == 4, "kinds of runs")

    # Merges that no scores follow: written as merges, if there is no mark before a text.
    odd = [m for m in llama["model"]["merges"] if "".join(m) != made[3]]
    loose = kit.pairs(chars, made, merges=odd, prepend=False)
    alike("by merges", loose, model="gemma4", merges=[" ".join(m) for m in odd])
    # Of Gemma 4 marks are special, and in the file tokens of the user: so they are printed by llama.cpp, and special here.
    marked = dict(loose, added_tokens=loose["added_tokens"] + [kit.added(690, "<|channel>"), kit.added(691, '<|"|>'), kit.added(692, "<|turn>")])
    types = alike("marks", marked, model="gemma4")["tokenizer.ggml.token_type"]
    check(types[690:693] == [4, 4, 3], f"kinds of marks: {types[690:693]}")
    refused("would join the text of token 263", kit.pairs(chars, made, merges=odd))
    line = odd + [["e", "\n"], ["e\n", "a"]]
    refused("a token goes on behind the end of a line", kit.pairs(chars + ["\n"], made + ["e\n", "e\na"], merges=line, prepend=False))

    # Any merges: those that are written by scores read every text alike, those that are not differ somewhere.
    some, kinds = "ab" + MARK, {"llama": 0, "gemma4": 0}
    for tried in range(60):
        if tried >= (8 if quick else 40) and min(kinds.values()) > 0:
            break
        tokens = list(some)
        while len(tokens) < 9:
            new = rnd.choice(tokens) + rnd.choice(tokens)
            tokens += [new] * (new not in tokens and len(new) < 7)
        merges = [[t[:i], t[i:]] for t in tokens for i in range(1, len(t)) if t[:i] in tokens and t[i:] in tokens]
        rnd.shuffle(merges)
        if rnd.random() < 0.5:
            merges.sort(key=lambda m: tokens.index("".join(m)))
        if rnd.random() < 0.4:
            del merges[rnd.randrange(len(merges))]
        tokenizer = kit.pairs(list(some), tokens[3:], merges=merges, prepend=False)
        path = folder(tokenizer)
        out, code, _, err = write(path)
        check(code == 0, f"{merges}: {err}")
        every = b"\0".join("".join(t).encode() for n in range(1, 8) for t in itertools.product("ab ", repeat=n))
        p = subprocess.run([same_tokens, path, out], input=every, capture_output=True, timeout=250)
        check(p.returncode == 0, f"{merges}: {p.stdout.decode(errors='replace')}")
        kinds[Gguf(out).pairs["tokenizer.ggml.model"]] += 1
    check(min(kinds.values()) > 0, f"both kinds occur: {kinds}")

    # Unigram.
    t5 = kit.unigram(chars, made, rnd)
    ends = "of white space at the end of a text spaces alone are dropped"
    alike("Unigram", t5, ends, "right", model="t5", add_space_prefix=True, remove_extra_whitespaces=True, add_bos_token=False, add_eos_token=True, unknown_token_id=0,
          eos_token_id=2)
    plain = dict(t5, normalizer=kit.REPLACE, pre_tokenizer=None, decoder=kit.decoder(False))
    alike("Unigram without a mark", plain, model="t5", add_space_prefix=False, remove_extra_whitespaces=False)
    finer = dict(t5, model=dict(t5["model"], vocab=[[t, s - 1e-12] for t, s in t5["model"]["vocab"]]))
    alike("Unigram with scores of 64 bits", finer, "scores are rounded to 32 bits", "right", model="t5")
    # A map of nothing, which is written as it is: an array of no units.
    mapped = dict(t5, normalizer=kit.sequence("normalizers", {"type": "Precompiled", "precompiled_charsmap": "AAAAAA=="}, *t5["normalizer"]["normalizers"]))
    alike("Unigram with a map", mapped, None, "right", model="t5", precompiled_charsmap=[0, 0, 0, 0])

    # Numbers: the folder's bits, and in fewer bits about the same.
    path = folder(llama)
    out, code, _, err = write(path, "F32")
    check(code == 0, f"F32: {err}")
    for model in (path, out):
        code, _, err = run("logits", model, "--ids", ids, "--out", model + ".logits", "--arith", "f32")
        check(code == 0, f"logits of {model}: {err}")
    one, other = (open(m + ".logits", "rb").read() for m in (path, out))
    check(one == other and len(one) > 64 * rows * 4, "logits of the F32 file are the folder's bits")
    code, shown, err = run("ppl", write(path)[0], "--against-model", path, "--ids", ids, "--arith", "f32", "--json")
    check(code == 0 and 0 < json.loads(shown)["kl_mean"] < 0.01, f"Q8_0: {shown} {err}")

    # What a file cannot say.
    def changed(base, **model):
        return dict(base, model=dict(base["model"], **model))

    step = lambda *steps: dict(llama, normalizer=kit.sequence("normalizers", *steps))
    refused('no key for {"type":"NFKC"', step({"type": "NFKC"}, kit.REPLACE))
    refused('no key for {"type":"Lowercase"', step(kit.PREPEND, kit.REPLACE, {"type": "Lowercase"}))
    refused('no key for {"type":"Strip"', step(kit.REPLACE, {"type": "Strip"}))
    refused("have no key for spaces made one", step({"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": " "}, kit.REPLACE))
    refused("spaces stay spaces", dict(llama, normalizer=None))
    refused('pre_tokenizer: a GGUF file has no key for {"type":"Digits"', dict(llama, pre_tokenizer={"type": "Digits", "individual_digits": True}))
    refused("no byte_fallback to <0x00>", changed(llama, byte_fallback=False))
    bare = {t: i for t, i in llama["model"]["vocab"].items() if t != "<0x41>"}
    refused("without a token <0x41>", changed(llama, vocab=bare))
    refused("no key for ignore_merges", changed(llama, ignore_merges=True))
    refused("merge 0: a half or the whole is not a token", changed(llama, merges=[["q", "zzz"]]))
    refused("merge 0 is not two texts", changed(llama, merges=["qzzz"]))
    refused("joins tokens of bytes", changed(llama, vocab={**llama["model"]["vocab"], "<0x41><0x42>": 700}, merges=[["<0x41>", "<0x42>"]]))
    refused("have the same text", dict(llama, added_tokens=llama["added_tokens"] + [kit.added(701, made[1], False)]))
    refused("the embedding has 704 rows", dict(llama, added_tokens=llama["added_tokens"] + [kit.added(704, "<far>")]))
    refused("at most 512", dict(llama, added_tokens=llama["added_tokens"] + [kit.added(701, "x" * 600)]))
    twice = dict(kit.around(), single=[kit.around()["single"][0]] * 2 + [kit.around()["single"][1]])
    refused("2 tokens before every text", dict(llama, post_processor=twice))
    refused("bos_token is 3", llama, {"bos_token": "<turn>", "eos_token": "</s>"})
    refused("byte_fallback of Unigram", changed(t5, byte_fallback=True))
    refused("a score of 1e+300", changed(t5, vocab=t5["model"]["vocab"] + [["far", 1e300]]))
    refused("Unigram without unk_id", changed(t5, unk_id=None))
    refused("holds U+2581, where text is cut", changed(t5, vocab=t5["model"]["vocab"] + [["e" + MARK, -4.0]]))
    refused("dropped at the end alone", dict(t5, normalizer={"type": "Strip"}))
    refused("without U+2581 before every text", dict(t5, pre_tokenizer=dict(t5["pre_tokenizer"], prepend_scheme="never")))
    refused("no base64", dict(mapped, normalizer=kit.sequence("normalizers", {"type": "Precompiled", "precompiled_charsmap": "!!"})))

sys.exit(1 if failures else 0)
