#!/usr/bin/python3
"""Drafters by option: what each says when it cannot, and that answers and logits are the same with each.
Run as: test_draft_options.py WEFT MODELS"""
import json
import os
import shutil
import struct
import subprocess
import sys
import tempfile

WEFT, MODELS = sys.argv[1:3]
GOLDEN = os.path.join(MODELS, "../tests/golden")
TINY, DRAFT, QUANT = (os.path.join(MODELS, n) for n in ("weft-tiny", "weft-tiny-draft", "weft-tiny-4bit"))


def run(*args, code=0):
    p = subprocess.run([WEFT, *args], capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=120)
    assert p.returncode == code, "%s: exit %d, not %d\n%s\n%s" % (args, p.returncode, code, p.stdout, p.stderr)
    return p


def head_folder(work, rename):
    """The draft head of weft-tiny in a folder of its own."""
    out = os.path.join(work, "head-" + rename("mtp.x"))
    os.mkdir(out)
    with open(os.path.join(TINY, "model.safetensors"), "rb") as f:
        head = json.loads(f.read(struct.unpack("<Q", f.read(8))[0]))
        data = f.read()
    part, at, blob = {}, 0, b""
    for name, t in head.items():
        if name.startswith("mtp."):
            a, b = t["data_offsets"]
            part[rename(name)] = {**t, "data_offsets": [at, at + b - a]}
            blob += data[a:b]
            at += b - a
    text = json.dumps(part).encode()
    text += b" " * (-len(text) % 8)
    with open(os.path.join(out, "model.safetensors"), "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text + blob)
    with open(os.path.join(TINY, "config.json")) as f:
        config = json.load(f)
    config["model_type"] = "qwen3_5_mtp"
    with open(os.path.join(out, "config.json"), "w") as f:
        json.dump(config, f)
    return out


def other_tokens(work):
    out = os.path.join(work, "other-tokens")
    shutil.copytree(DRAFT, out)
    path = os.path.join(out, "tokenizer.json")
    with open(path) as f:
        t = json.load(f)
    t["added_tokens"][-1]["content"] = "<|changed|>"
    with open(path, "w") as f:
        json.dump(t, f)
    return out


def other_heads(work):
    """Heads of other makers: the logits of plain decoding, whatever they guess."""
    model, ids, out = (os.path.join(GOLDEN, "qwen3_5/mlx-q4"), os.path.join(work, "few.json"), os.path.join(work, "few"))
    with open(ids, "w") as f:
        json.dump([(i * i * 7 + 5) % 500 for i in range(70)], f)

    def logits(*more):
        run("logits", model, "--ids", ids, "--out", out, "--greedy", "30", *more)
        with open(out, "rb") as f:
            return f.read()

    want = logits()
    heads = ("eagle3_speculators", "dflash_sliding", "dspark", "dflash2")
    for name in heads:
        head = os.path.join(GOLDEN, "_draft", name)
        for more in (["--draft", "head"], ["--draft", "auto", "--num-draft-tokens", "3"],
                     ["--draft", "head", "--alongside", "2", "--split", "7"]):
            assert logits("--draft-model", head, *more) == want, (name, more)
    both = [w for name in heads for w in ("--draft-model", os.path.join(GOLDEN, "_draft", name))]
    for kind in ("auto", "head"):
        assert logits(*both, "--draft", kind) == want, kind
    print("ok the same logits with heads of other makers")


def bad_heads(work):
    """A DFlash 2 head whose numbers disagree is refused with what, where and what was expected."""
    source, bad = os.path.join(GOLDEN, "_draft/dflash2"), os.path.join(work, "bad")
    shutil.copytree(source, bad)
    for key, value, why in (("conv_group_size", 24, "dflash_config.conv_group_size: 24 does not divide hidden_size 64"),
                            ("conv_group_size", 8, "layers.0.attention_conv.kernel_projection.weight: is [16, 64], "),
                            ("conv_kernel_size", 3, "layers.0.attention_conv.base_kernel: is [2, 2, 64], "),
                            ("selector_rank", 16, "candidate_selector.predecessor_codebook: is [512, 24], "),
                            ("selector_top_k", 513, "dflash_config.selector_top_k: 513 is not "),
                            ("selector_top_k", None, "dflash_config.selector_top_k: missing"),
                            ("output_multiplier", -1, "dflash_config.output_multiplier: "),
                            ("final_logit_softcapping", -1, "dflash_config.final_logit_softcapping: -1 is below 0"),
                            ("projector_type", "dspark", 'dflash_config.projector_type: "dspark"')):
        with open(os.path.join(source, "config.json")) as f:
            config = json.load(f)
        config["dflash_config"][key] = value
        with open(os.path.join(bad, "config.json"), "w") as f:
            json.dump(config, f)
        e = run("logits", os.path.join(GOLDEN, "qwen3_5/mlx-q4"), "--ids", os.path.join(work, "few.json"), "--out", os.path.join(work, "few"),
                "--greedy", "4", "--draft", "head", "--draft-model", bad, code=1).stderr
        assert why in e, (why, e)
    print("ok heads that are refused")


def main():
    with tempfile.TemporaryDirectory() as work:
        ask = ("run", TINY, "--temp", "0", "-n", "40", "-p", "Repeat: red green blue red green blue red green")
        heads = [head_folder(work, lambda n: n), head_folder(work, lambda n: n.removeprefix("mtp."))]
        plain = run(*ask, "--draft-kind", "none").stdout
        for more in ([], ["--draft-kind", "ngram"], ["--draft-kind", "mtp"], ["--draft-model", DRAFT],
                     ["--draft-kind", "model", "--draft-model", DRAFT, "--num-draft-tokens", "16"],
                     ["--draft-model", heads[0]], ["--draft-kind", "mtp", "--draft-model", heads[1]],
                     ["--draft-kind", "grammar"], ["--draft-model", DRAFT, "--draft-model", heads[0]],
                     ["--num-draft-tokens", "0"], ["--tune", "draft-fixed", "--num-draft-tokens", "3"],
                     ["--tune", "draft-fixed", "--tune", "prefill-step-size=2"]):
            assert run(*ask, *more).stdout == plain, more
        print("ok the same answer")

        ids, out = os.path.join(work, "ids.json"), os.path.join(work, "out.safetensors")
        with open(ids, "w") as f:
            json.dump([(i * i * 7 + 5) % 2000 for i in range(90)], f)

        def logits(*more):
            run("logits", TINY, "--ids", ids, "--out", out, "--greedy", "30", *more)
            with open(out, "rb") as f:
                return f.read()

        want = logits()
        for more in (["--draft", "ngram"], ["--draft", "mtp"], ["--draft", "mtp", "--alongside", "2", "--split", "7"],
                     ["--draft", "mtp", "--draft-model", heads[1], "--resume-at", "100"],
                     ["--draft", "auto", "--draft-model", DRAFT, "--num-draft-tokens", "5"]):
            assert logits(*more) == want, more
        print("ok the same logits")

        def refused(what, *more):
            e = run(*ask, *more, code=1).stderr
            assert what in e, e

        refused("needs --draft-model", "--draft-kind", "model")
        refused("without a model", "--draft-kind", "ngram", "--draft-model", DRAFT)
        refused("two that draft as mtp", "--draft-model", heads[0], "--draft-model", heads[1])
        refused("6 models, at most 5", *["--draft-model", DRAFT] * 6)
        refused("is a whole model", "--draft-kind", "head", "--draft-model", DRAFT)
        refused("is a draft head", "--draft-kind", "model", "--draft-model", heads[0])
        refused("cannot draft: its token", "--draft-model", other_tokens(work))
        e = run("run", QUANT, "-p", "x", "--draft-kind", "mtp", code=1).stderr
        assert "no draft head" in e, e
        e = run(*ask, "--draft-kind", "magic", code=2).stderr
        assert "none|ngram|grammar|model|head|auto" in e, e
        e = run("inspect", os.path.join(GOLDEN, "_draft/eagle3_speculators"), code=1).stderr
        assert "a draft head without its model" in e, e
        refused("the model has", "--draft-model", os.path.join(GOLDEN, "_draft/dflash_sliding"))
        refused("asks for", "--draft-model", os.path.join(GOLDEN, "_draft/eagle3_speculators"))
        print("ok refusals")

        other_heads(work)
        bad_heads(work)


main()
