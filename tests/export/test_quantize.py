#!/usr/bin/env python3
"""weft quantize: what it makes is read again, says what it cost, and is whole or not there.

The source of folders is the bundled model; of GGUF files those of ../shared, if they are there."""
import json, os, resource, struct, subprocess, sys, tempfile

import numpy as np

from exportkit import check, failures, models, run, shared, weft

quick = "WEFT_TEST_QUICK" in os.environ  # a build with sanitizers: what is counted and measured takes longest
tiny = os.path.join(models, "weft-tiny-draft" if quick else "weft-tiny")
gguf = os.path.join(os.environ.get("WEFT_SHARED", shared), "golden/_gguf/models/llama")


def kl(model, against, ids):
    code, out, err = run("ppl", model, "--ids", ids, "--against-model", against, "--json")
    check(code == 0, f"ppl {model}: {err}")
    return json.loads(out)["kl_mean"] if code == 0 else 1e9


def kinds(model):
    code, out, err = run("inspect", model)
    check(code == 0, f"inspect {model}: {err}")
    return out


def safetensors(path):
    data = open(path, "rb").read()
    n = struct.unpack("<Q", data[:8])[0]
    head = json.loads(data[8 : 8 + n])
    return {k: (t["dtype"], t["shape"], data[8 + n :][slice(*t["data_offsets"])]) for k, t in head.items() if k != "__metadata__"}


def decoded(source, to):
    """A folder of the numbers that one of FP8 blocks stands for."""
    os.mkdir(to)
    with open(os.path.join(source, "config.json")) as f:
        config = json.load(f)
    high, broad = config.pop("quantization_config")["weight_block_size"]
    with open(os.path.join(to, "config.json"), "w") as f:
        json.dump(config, f)
    codes = np.arange(128)
    e, m = codes >> 3, codes & 7
    table = np.where(e == 0, m / 8 * 2.0**-6, (1 + m / 8) * 2.0 ** (e - 7.0))
    table = np.concatenate((table, -table)).astype("<f4")
    tensors, head, out = safetensors(os.path.join(source, "model.safetensors")), {}, b""
    for name, (kind, shape, data) in tensors.items():
        if name.endswith("_scale_inv"):
            continue
        if kind == "F8_E4M3":
            grid = np.frombuffer(tensors[name + "_scale_inv"][2], "<f4").reshape(tensors[name + "_scale_inv"][1])
            by = np.repeat(np.repeat(grid, high, 0), broad, 1)[: shape[0], : shape[1]]
            kind, data = "F32", (table[np.frombuffer(data, "u1").reshape(shape)] * by).astype("<f4").tobytes()
        head[name] = {"dtype": kind, "shape": shape, "data_offsets": [len(out), len(out) + len(data)]}
        out += data
    head = json.dumps(head).encode()
    with open(os.path.join(to, "model.safetensors"), "wb") as f:
        f.write(struct.pack("<Q", len(head)) + head + out)


def small_files():
    """A limit on the size of files: a disk that is full."""
    most = 1 << 18 if quick else 1 << 20
    resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))


with tempfile.TemporaryDirectory() as tmp:
    ids = os.path.join(tmp, "ids.json")
    with open(ids, "w") as f:
        json.dump([(7 * i * i + 3 * i) % 300 for i in range(96)], f)
    at = lambda name: os.path.join(tmp, name)

    # Folders.
    cost = {}
    for kind, name in (("affine4", "affine4"), ("affine8g32", "affine8"), ("mxfp4", "mxfp4")):
        code, out, err = run("quantize", tiny, "--type", kind, "--out", at(kind))
        check(code == 0, f"{kind}: {err}")
        check(name in kinds(at(kind)), f"{kind}: matrices of {name}")
        check(not os.path.exists(at(kind) + ".partial"), f"{kind}: nothing is left")
        check(not any("partial" in f for f in os.listdir(at(kind))), f"{kind}: nothing is left inside")
        cost[kind] = kl(at(kind), tiny, ids)
    check(cost["affine8g32"] < 0.01 < cost["affine4"] < cost["mxfp4"] < 1, f"what they cost: {cost}")
    bundled = os.path.join(models, "weft-tiny")  # with a draft head, which weft-tiny-draft lacks
    code, out, err = run("quantize", bundled, "--type", "affine4", "--out", at("headed"))
    check(code == 0, f"a folder with a draft head: {err}")
    head = {m: json.loads(run("inspect", m, "--json")[1])["draft_head"]["bytes"] for m in (bundled, at("headed"))}
    check(head[at("headed")] < 0.3 * head[bundled], f"the draft head is made smaller too: {head}")
    one = open(at("affine4/model.safetensors"), "rb").read()
    code, out, err = run("quantize", tiny, "--type", "affine4", "--out", at("again"), "--threads", "1")
    check(open(at("again/model.safetensors"), "rb").read() == one, "one thread writes the same bytes")

    # FP8 matrices are read with their scales, and have the codes of the numbers that they stand for.
    blocks = os.path.join(shared, "golden/deepseek_v3/hf-fp8")
    if os.path.isdir(blocks):
        decoded(blocks, at("decoded"))
        made = {}
        for source, name in ((blocks, "of_fp8"), (at("decoded"), "of_floats")):
            code, out, err = run("quantize", source, "--type", "affine4g32", "--out", at(name))
            check(code == 0, f"{name}: {err}")
            made[name] = safetensors(at(name + "/model.safetensors"))
        coded = [k for k, t in made["of_floats"].items() if t[0] == "U32"]
        check(len(coded) > 50 and all(made["of_fp8"][k] == made["of_floats"][k] for k in coded), "codes of FP8 blocks")
        check(made["of_fp8"].keys() == made["of_floats"].keys(), "the scales of FP8 blocks are no tensors any more")
        check(run("logits", at("of_fp8"), "--ids", ids, "--out", at("l"))[0] == 0, "a folder made of FP8 is read")

    # Inputs count as much as a text uses them: less is lost on such text.
    text = at("text")
    with open(os.path.join(models, "../tools/train/eval/held-out.txt"), "rb") as source, open(text, "wb") as f:
        f.write(source.read(5000 if quick else 20000))
    code, out, err = run("quantize", tiny, "--type", "affine3", "--out", at("three"), "--text", text)
    check(code == 0 and "KL divergence" in out, f"what it cost is printed: {out} {err}")
    code, out, err = run("quantize", tiny, "--type", "affine3", "--out", at("calibrated"), "--calibrate", text)
    check(code == 0, f"calibrated: {err}")
    lost = []
    for name in ("three", "calibrated"):
        code, out, err = run("ppl", at(name), "--text", text, "--against-model", tiny, "--json")
        lost.append(json.loads(out)["kl_mean"])
    check(lost[1] < lost[0], f"what counts more is kept better: {lost}")
    code, out, err = run("quantize", tiny, "--type", "affine3", "--out", at("x"), "--calibrate", text, "--imatrix", text)
    check(code == 2 and "one of them" in err, f"two importances: {code} {err}")

    # A full disk, and on.
    code, out, err = run("quantize", tiny, "--type", "affine4", "--out", at("full"), preexec_fn=small_files)
    check(code != 0 and not os.path.exists(at("full")), "a full disk leaves nothing of that name")
    code, out, err = run("quantize", tiny, "--type", "affine4", "--out", at("full"))
    check(code == 0 and open(at("full/model.safetensors"), "rb").read() == one, f"and then it is whole: {err}")

    # The same question twice gives the same answer, as of every model.
    answers = {run("run", at("affine4"), "What is the capital of Peru?", "--temp", "0", "-n", "12")[1] for _ in range(2)}
    check(len(answers) == 1, "it answers")

    # Names of folders as shells complete them, and names that nothing can have.
    code, out, err = run("quantize", tiny + "/", "--type", "affine4", "--out", at("slash") + "//")
    check(code == 0 and open(at("slash/model.safetensors"), "rb").read() == one, f"a slash at the end: {code} {err}")
    check(not [f for f in os.listdir(tmp) if "partial" in f], "nothing is left of it")
    for kind, name, what in (("affine4", "slash/", "is there already"), ("affine4", "slash", "is there already"), ("affine4", "no/new", "there is no folder"),
                             ("affine4", "no/new/", "there is no folder"), ("affine4", "no/.", "there is no folder"), ("affine4", "slash/..", "is there already"),
                             ("affine4", "", "names nothing"), ("Q8_0", "", "names nothing"), ("Q8_0", "x.gguf/", "a file is made"),
                             ("Q8_0", "slash/", "a file is made"), ("Q8_0", "no/x.gguf", "there is no folder"), ("affine4", "ids.json/x", "there is no folder")):
        code, out, err = run("quantize", tiny, "--type", kind, "--out", name and os.path.join(tmp, name))
        check(code == 2 and what in err, f"{kind} {name}: {code} {err}")
        check(sorted(os.listdir(at("slash"))) == sorted(os.listdir(at("affine4"))), f"{name} changes nothing")
    here = run("quantize", os.path.abspath(tiny), "--type", "affine4", "--out", "slash2/", cwd=tmp)
    check(here[0] == 0 and os.path.exists(at("slash2/config.json")), f"a name without a path: {here}")
    code, out, err = run("quantize", tiny, "--type", "Q8_0", "--out", at("x.gguf"), "--mmproj-out", at("x.gguf"))
    check(code == 2 and "is --out too" in err, f"two files of one name: {code} {err}")

    # Refusals.
    for args, what in (
        (["--type", "affine4", "--out", at("affine4")], "is there already"),
        (["--type", "affine7", "--out", at("x")], "affine2"),
        (["--type", "q9", "--out", at("x")], "Q4_K_M"),
        (["--type", "affine4"], "--out"),
        (["--out", at("x")], "--type"),
    ):
        code, out, err = run("quantize", tiny, *args)
        check(code == 2 and what in err, f"{args}: {code} {err}")
    for model, kind, what in ((at("affine4"), "affine4", "already"), (at("affine4"), "Q4_0", "already")):
        code, out, err = run("quantize", model, "--type", kind, "--out", at("x"))
        check(code == 1 and what in err, f"{kind} of {model}: {code} {err}")

    if not os.path.isdir(gguf):
        print(f"skipped: {gguf} missing")
        sys.exit(1 if failures else 77)

    # GGUF files, beside what the reference made of the same one.
    plain = os.path.join(gguf, "bf16.gguf")
    for kind in ("Q4_0", "Q4_K_M", "IQ4_XS", "Q8_0", "BF16"):
        code, out, err = run("quantize", plain, "--type", kind, "--out", at(kind + ".gguf"))
        check(code == 0, f"{kind}: {err}")
        cost[kind] = kl(at(kind + ".gguf"), plain, ids)
    check(cost["BF16"] == 0, f"the same numbers cost nothing: {cost}")
    check(cost["Q8_0"] < cost["Q4_K_M"] < cost["Q4_0"], f"what they cost: {cost}")
    theirs = kl(os.path.join(gguf, "q4_0.gguf"), plain, ids)
    check(cost["Q4_0"] < theirs, f"Q4_0 costs {cost['Q4_0']}, the reference's {theirs}")
    code, out, err = run("quantize", at("Q4_0.gguf"), "--type", "Q8_0", "--out", at("x.gguf"))
    check(code == 1 and "not quantised again" in err, f"twice: {code} {err}")
    short = os.path.join(tmp, "short")
    with open(short, "w") as f:
        f.write("the capital of Peru " * 20)
    code, out, err = run("quantize", plain, "--type", "Q4_0", "--out", at("counted.gguf"), "--calibrate", short)
    check(code == 0, f"calibrated: {err}")
    check(open(at("counted.gguf"), "rb").read() != open(at("Q4_0.gguf"), "rb").read(), "importance reaches GGUF's names")
    code, out, err = run("quantize", plain, "--type", "affine4", "--out", at("folder"))
    check(code == 0 and "affine4" in kinds(at("folder")), f"a folder of a GGUF file: {err}")

sys.exit(1 if failures else 0)
