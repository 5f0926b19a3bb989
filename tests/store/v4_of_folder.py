"""DeepSeek V4 in the names and the config of transformers, and in those of mlx-lm and mlx-vlm, plain and quantised, gives bit for
bit the logits of the same numbers in DeepSeek's own: v4_of_folder.py WEFT GOLDEN

GOLDEN is a folder with names of DeepSeek's.  What cannot be read in the other form is refused by its place.
"""
import json
import os
import re
import struct
import subprocess
import sys
import tempfile

WEFT, GOLDEN = sys.argv[1:]
IDS = [3, 9, 27, 17, 51, 25, 11, 33, 35, 41, 59, 49, 19, 57, 43, 1, 2, 4, 8, 16, 32, 63, 5, 7]
YARN = {"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64, "beta_fast": 32, "beta_slow": 1}
# Behind layers.N.; the first that fits.
TRANSFORMERS = [
    (r"attn_norm\b", "input_layernorm"), (r"ffn_norm\b", "post_attention_layernorm"), (r"hc_(attn|ffn)_(\w+)", r"\1_hc.\2"),
    (r"attn\.indexer\.compressor\.", "attn.compressor.indexer."), (r"attn\.indexer\.weights_proj", "attn.compressor.indexer.SCORERweights_proj"),
    (r"attn\.indexer\.", "attn.compressor.indexer."), (r"attn\.attn_sink", "attn.sinks"), (r"attn\.q_norm", "attn.q_a_norm"),
    (r"\.(compressor[.\w]*)\.norm\.", r".\1.kv_norm."), (r"\bape\b", "position_bias"), (r"\bwq_a\b", "q_a_proj"), (r"\bwq_b\b", "q_b_proj"),
    (r"\bwkv\b", "kv_proj"), (r"\bwgate\b", "gate_proj"), (r"\bwo_(\w)\b", r"o_\1_proj"), (r"\bgate\.bias$", "gate.e_score_correction_bias"),
    (r"shared_experts\.w1", "shared_experts.gate_proj"), (r"shared_experts\.w2", "shared_experts.down_proj"),
    (r"shared_experts\.w3", "shared_experts.up_proj"), (r"^attn\.", "self_attn."), (r"^ffn\.", "mlp.")]
MLX = [(r"hc_(attn|ffn)_(\w+)", r"\1_hc.\2"), (r"\bgate\.bias$", "gate.e_score_correction_bias"), (r"shared_experts\.w1", "shared_experts.gate_proj"),
       (r"shared_experts\.w2", "shared_experts.down_proj"), (r"shared_experts\.w3", "shared_experts.up_proj")]
HEADS = {"embed": "model.embed_tokens", "head": "lm_head", "norm": "model.norm"}


def renamed(name, rules, head, before=""):
    """A name, or the path of a module, of DeepSeek's in the other spelling."""
    m = re.match(r"(layers\.\d+\.)(.*)", name)
    if m:
        rest = m.group(2)
        for a, b in rules:
            rest = re.sub(a, b, rest)
        return before + "model." + m.group(1) + rest
    for own, other in HEADS.items():
        if name == own or name == own + ".weight":
            return before + other + name[len(own):]
    return before + "model.hc_head." + head + name[8:] if name.startswith("hc_head_") else name


def read(folder):
    """{name: (dtype, shape, bytes)} and the config."""
    out = {}
    for file in sorted(os.listdir(folder)):
        if not re.fullmatch(r"model.*\.safetensors", file):
            continue
        with open(os.path.join(folder, file), "rb") as f:
            head = json.loads(f.read(struct.unpack("<Q", f.read(8))[0]))
            data = f.read()
        head.pop("__metadata__", None)
        out.update({n: (t["dtype"], t["shape"], data[slice(*t["data_offsets"])]) for n, t in head.items()})
    with open(os.path.join(folder, "config.json")) as f:
        return out, json.load(f)


def write(folder, tensors, config):
    os.makedirs(folder, exist_ok=True)
    head, data = {}, b""
    for name, (kind, shape, part) in tensors.items():
        head[name] = {"dtype": kind, "shape": shape, "data_offsets": [len(data), len(data) + len(part)]}
        data += part
    said = json.dumps(head).encode()
    with open(os.path.join(folder, "model.safetensors"), "wb") as f:
        f.write(struct.pack("<Q", len(said)) + said + data)
    with open(os.path.join(folder, "config.json"), "w") as f:
        json.dump(config, f)
    return folder


def stacked(tensors, parts, to, beside):
    """The experts' matrices in one tensor of each layer; parts: those that stand in it one below the other; beside: further kinds."""
    for at in sorted({n.split(".experts.")[0] for n in tensors if ".ffn.experts.0." + parts[0] in n and not n.startswith("mtp.")}):
        for kind in ("weight", *beside):
            n = 0
            while f"{at}.experts.{n}.{parts[0]}.{kind}" in tensors:
                n += 1
            if not n:
                continue
            one = [tensors.pop(f"{at}.experts.{e}.{p}.{kind}") for e in range(n) for p in parts]
            shape = [n, sum(t[1][0] for t in one[:len(parts)]), *one[0][1][1:]]
            tensors[f"{at}.{to}" + ("." + kind if "switch_mlp" in to else "")] = (one[0][0], shape, b"".join(t[2] for t in one))


def as_transformers(tensors, config, scorer):
    tensors = dict(tensors)
    stacked(tensors, ("w1", "w3"), "experts.gate_up_proj", ())
    stacked(tensors, ("w2",), "experts.down_proj", ())
    tensors = {renamed(n, TRANSFORMERS, "hc_").replace("SCORER", scorer): t for n, t in tensors.items()}
    config = dict(config)
    ratios, layers, theta = config.pop("compress_ratios"), config["num_hidden_layers"], config.pop("compress_rope_theta")
    hashed, part = config.pop("num_hash_layers"), config.pop("qk_rope_head_dim") / config["head_dim"]
    kinds = {0: "sliding_attention", 4: "compressed_sparse_attention"}
    config.update(layer_types=[kinds.get(r, "heavily_compressed_attention") for r in ratios[:layers]], partial_rotary_factor=part,
                  compress_rates={"compressed_sparse_attention": 4, "heavily_compressed_attention": max(ratios)},
                  mlp_layer_types=["hash_moe"] * hashed + ["moe"] * (layers - hashed),
                  rope_parameters={"main": {"rope_type": "default", "rope_theta": config.pop("rope_theta"), "partial_rotary_factor": part},
                                   "compress": {**config.pop("rope_scaling"), "rope_type": "yarn", "rope_theta": theta,
                                                "partial_rotary_factor": part, "attention_factor": 1.0}})
    return tensors, config


def as_mlx(tensors, config, before, groups):
    tensors, coded = {n: t for n, t in tensors.items() if not n.startswith("mtp.")}, ("scales", "biases")   # without the draft head
    for own, other in (("w1", "gate_proj"), ("w2", "down_proj"), ("w3", "up_proj")):
        stacked(tensors, (own,), "switch_mlp." + other, coded)
    for name, (kind, shape, part) in list(tensors.items()):
        if groups and ".attn.wo_a." in name:
            tensors[name] = (kind, [groups, shape[0] // groups, *shape[1:]], part)
        elif name.endswith("tid2eid"):
            tensors[name] = ("I32", shape, struct.pack("<%di" % (len(part) // 8), *struct.unpack("<%dq" % (len(part) // 8), part)))
    config = dict(config)
    for key in ("quantization", "quantization_config"):
        if key in config:
            config[key] = {renamed(k, MLX, "", before) if "." in k or k in HEADS else k: v for k, v in config[key].items()}
    return {renamed(n, MLX, "", before): t for n, t in tensors.items()}, config


def run(*args):
    p = subprocess.run([WEFT, *args, "--threads", "1"], capture_output=True, text=True)
    return p.returncode, p.stderr


def logits(folder, ids):
    out = folder + ".out"
    code, why = run("logits", folder, "--ids", ids, "--arith", "f32", "--out", out)
    if code or "warn" in why.lower():
        sys.exit("%s: %s" % (folder, why))
    with open(out, "rb") as f:
        return f.read()


def main():
    bad = 0

    def same(name, got, want):
        nonlocal bad
        bad += got != want
        print("ok  " if got == want else "FAIL", name)

    with tempfile.TemporaryDirectory() as tmp:
        ids, place = os.path.join(tmp, "ids"), lambda name: os.path.join(tmp, name)
        with open(ids, "w") as f:
            json.dump(IDS, f)
        tensors, config = read(GOLDEN)
        config["rope_scaling"] = YARN
        own = write(place("own"), tensors, config)
        want = logits(own, ids)
        for scorer in ("", "scorer."):
            there, said = as_transformers(tensors, config, scorer)
            same("transformers" + scorer, logits(write(place("transformers" + scorer), there, said), ids), want)
        for key, value, why in (("layer_types", ["full_attention"] * 3, "layer_types: entry 0 is \"full_attention\", not sliding_attention"),
                                ("mlp_layer_types", ["moe", "hash_moe", "moe"], "mlp_layer_types: entry 1 is hash_moe behind moe")):
            code, text = run("logits", write(place("wrong"), there, {**said, key: value}), "--ids", ids, "--arith", "f32", "--out", place("x"))
            same("refused: " + key, (code != 0, "config.json: " + why in text), (True, True))
        for before, groups in (("", 0), ("language_model.", config["o_groups"])):
            same("mlx " + before, logits(write(place("mlx"), *as_mlx(tensors, config, before, groups)), ids), want)
        code, why = run("quantize", own, "--type", "affine4g32", "--out", place("coded"))
        if code:
            sys.exit(why)
        coded, said = read(place("coded"))
        # One matrix is of another kind, so its own entry has to be found.
        some = next(n for n in coded if n.endswith("attn.wq_a.weight"))[:-len(".weight")]
        for kind in ("weight", "scales", "biases"):
            coded.pop(some + "." + kind)
        coded[some + ".weight"] = tensors[some + ".weight"]
        for key in ("quantization", "quantization_config"):
            if key in said:
                said[key][some] = False
        want = logits(write(place("mixed"), coded, said), ids)
        for before, groups in (("", 0), ("language_model.", config["o_groups"])):
            same("mlx coded " + before, logits(write(place("mlx"), *as_mlx(coded, said, before, groups)), ids), want)
    return bad > 0


if __name__ == "__main__":
    sys.exit(main())
