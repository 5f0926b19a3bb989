#!/usr/bin/env python3
"""weft quantize to a GGUF file of folders of each family that it writes: the F32 file gives the folder's logits, bit for bit where no
number is computed anew, and what the metadata cannot say is refused.

Folders of tests/golden are in every clone; those of ../shared are looked at where they are. Some are written anew with another
setting, since their own is one that a GGUF file has no key for."""
import array, json, os, sys, tempfile

from exportkit import Gguf, check, failures, models, run, shared

tree = os.path.join(models, "../tests/golden")
golden = os.path.join(os.environ.get("WEFT_SHARED", shared), "golden")


def logits(model, ids, out):
    code, _, err = run("logits", model, "--ids", ids, "--out", out, "--arith", "f32")
    check(code == 0, f"logits of {model}: {err}")
    return open(out, "rb").read() if code == 0 else b""


def values(data):
    n = int.from_bytes(data[:8], "little")
    return array.array("f", data[8 + n :])


with tempfile.TemporaryDirectory() as tmp:

    def changed(folder, name, **config):
        """The folder with other settings."""
        path = os.path.join(tmp, name)
        os.mkdir(path)
        for file in os.listdir(folder):
            if file.startswith("model") and file.endswith((".safetensors", ".index.json")):
                os.symlink(os.path.abspath(os.path.join(folder, file)), os.path.join(path, file))
        has = json.load(open(os.path.join(folder, "config.json")))
        has.get("text_config", has).update(config)
        json.dump(has, open(os.path.join(path, "config.json"), "w"))
        return path

    def same(folder, name, most=0.0, theirs=None, apart=(), **config):
        """most: how far a logit may be; theirs: a file that llama.cpp's converter made of the folder, apart: keys that differ."""
        if not os.path.isdir(folder):
            return print("skipped", folder)
        path = changed(folder, name, **config)
        rows = json.load(open(os.path.join(path, "config.json")))
        rows = rows.get("text_config", rows)["vocab_size"]
        ids, out = os.path.join(tmp, name + ".json"), os.path.join(tmp, name + ".gguf")
        json.dump([(7 * i * i + 3 * i) % rows for i in range(48)], open(ids, "w"))
        code, _, err = run("quantize", path, "--type", "F32", "--out", out)
        check(code == 0, f"{name}: {err}")
        if code:
            return None
        one, other = (logits(m, ids, m + ".logits") for m in (path, out))
        if most:
            a, b = values(one), values(other)
            far = max((abs(x - y) for x, y in zip(a, b)), default=1e9)
            check(len(a) == len(b) and far <= most, f"{name}: logits differ by {far}")
        else:
            check(one == other and one, f"{name}: logits are not the same bits")
        if theirs and os.path.exists(theirs):
            kind = os.path.basename(theirs)[: -len(".gguf")].upper()
            code, _, err = run("quantize", path, "--type", kind, "--out", out + kind)
            check(code == 0, f"{name}: {err}")
            ours, theirs = Gguf(out + kind), Gguf(theirs)
            for tensor in set(ours.tensors) | set(theirs.tensors):
                a, b = (g.tensors.get(tensor, ())[:2] for g in (ours, theirs))
                check(a == b, f"{name}: {tensor}: {a} for {b}")
            for key in set(ours.pairs) | set(theirs.pairs):
                if not key.startswith(("tokenizer.", "general.", *apart)):
                    check(ours.pairs.get(key) == theirs.pairs.get(key), f"{name}: {key}: {ours.pairs.get(key)} for {theirs.pairs.get(key)}")

    def refused(folder, name, what, **config):
        if not os.path.isdir(folder):
            return print("skipped", folder)
        out = os.path.join(tmp, name + ".gguf")
        code, _, err = run("quantize", changed(folder, name, **config), "--type", "F32", "--out", out)
        check(code == 1 and what in err and not os.path.exists(out), f"{name}: {code} {err}")

    in_tree = lambda name: os.path.join(tree, name, "hf-bf16")
    beside = lambda name: os.path.join(golden, name, "hf-bf16")
    file = lambda name: os.path.join(golden, "_gguf/models", name + ".gguf")

    same(in_tree("gemma2"), "gemma2", query_pre_attn_scalar=16)
    refused(in_tree("gemma2"), "scaled", "query_pre_attn_scalar: 24")
    same(in_tree("granite"), "granite")
    same(in_tree("phi3"), "phi3")
    refused(in_tree("phi3"), "long", "rope type longrope", rope_scaling={"type": "longrope", "short_factor": [1.0], "long_factor": [2.0]})
    same(in_tree("olmo2"), "olmo2")
    same(in_tree("glm4"), "glm4")
    same(in_tree("smollm3"), "smollm3", no_rope_layers=[1, 1], no_rope_layer_interval=4)
    refused(in_tree("smollm3"), "still", "no_rope_layer_interval: 2")
    same(in_tree("qwen2_moe"), "qwen2_moe")
    refused(in_tree("qwen2_moe"), "summed", "norm_topk_prob", norm_topk_prob=True)
    same(in_tree("glm4_moe_mtp"), "glm4_moe_mtp")
    same(beside("gemma3_text"), "gemma3", 1e-3)
    same(beside("gemma3_text"), "gemma3_plain", theirs=file("gemma3_text/q8_0"), query_pre_attn_scalar=64)
    same(beside("gemma3_text"), "gemma3_far", query_pre_attn_scalar=64, rope_scaling={"rope_type": "linear", "factor": 8.0})
    refused(beside("gemma3_text"), "capped", "attn_logit_softcapping", attn_logit_softcapping=50.0)
    refused(beside("gemma3_text"), "silu", "hidden_activation: silu", hidden_activation="silu")
    for name, of in (("gemma4_e2b", "gemma4_e2b/q8_0"), ("gemma4_moe", "gemma4_moe/q8_0"), ("gemma4_31b", None)):
        same(beside(name), name, theirs=of and file(of))
    refused(beside("gemma4_moe"), "few", "layer_types: 1, of 6 layers", layer_types=["full_attention"])
    same(beside("ministral3"), "ministral3")
    same(beside("olmo3"), "olmo3")
    same(beside("glm4_moe"), "glm4_moe")
    same(beside("lfm2"), "lfm2", theirs=file("lfm2/q8_0"))
    same(beside("lfm2_moe"), "lfm2_moe")
    same(beside("minimax_m2"), "minimax_m2")
    same(os.path.join(golden, "qwen3_next/hf-f32"), "qwen3_next", 1e-3, theirs=file("qwen3_next/q8_0"))
    same(beside("granitemoehybrid"), "granitemoehybrid", 1e-3)
    same(beside("granitemoehybrid"), "granite_turning", 1e-3, position_embedding_type="rope")
    refused(beside("granitemoehybrid_dense"), "granite_groups", "mamba_n_groups: 2")
    same(beside("mamba2"), "mamba2", 1e-3, theirs=file("mamba2/bf16"))
    for name, of in (("nemotron_h", "nemotron_h/bf16"), ("nemotron_h_moe", "nemotron_h_moe/q8_0"), ("nemotron_h_latent", None)):
        same(beside(name), name, 1e-3, theirs=of and file(of))

sys.exit(1 if failures else 0)
