#!/usr/bin/env python3
"""weft quantize to a GGUF file of folders of each family that it writes: the F32 file gives the folder's logits, bit for bit where no
number is computed anew, and what the metadata cannot say is refused.

Folders of tests/golden are in every clone; those of ../shared are looked at where they are. Some are written anew with another
setting, since their own is one that a GGUF file has no key for."""
import array, bisect, json, os, random, re, struct, sys, tempfile

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
        """most: how far a logit may be; theirs: a file that llama.cpp's converter made of the folder, apart: what differs: keys, and
        tensors, whose shapes are the same."""
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
                a, b = (g.tensors.get(tensor, ())[: 1 if tensor.endswith(apart) else 2] for g in (ours, theirs))
                check(a == b, f"{name}: {tensor}: {a} for {b}")
            for key in set(ours.pairs) | set(theirs.pairs):
                if not key.startswith(("tokenizer.", "general.", *apart)):
                    check(ours.pairs.get(key) == theirs.pairs.get(key), f"{name}: {key}: {ours.pairs.get(key)} for {theirs.pairs.get(key)}")

    def rewritten(path, change):
        """The folder at path with other tensors: change(tensors) gets and returns {name: (type, shape, bytes)}."""
        model = os.path.join(path, "model.safetensors")
        data = open(model, "rb").read()
        n, at, header = int.from_bytes(data[:8], "little"), 0, {}
        tensors = {name: (t["dtype"], t["shape"], data[8 + n + t["data_offsets"][0] : 8 + n + t["data_offsets"][1]])
                   for name, t in json.loads(data[8 : 8 + n]).items() if name != "__metadata__"}
        tensors = change(tensors)
        for name, (kind, shape, values) in tensors.items():
            header[name] = {"dtype": kind, "shape": shape, "data_offsets": [at, at + len(values)]}
            at += len(values)
        head = json.dumps(header).encode()
        os.remove(model)  # a link
        with open(model, "wb") as f:
            f.write(len(head).to_bytes(8, "little") + head + b"".join(values for _, _, values in tensors.values()))
        return path

    def unpacked(tensors):
        """gpt-oss with its experts in BF16, as fine-tuned folders have them: [experts][inputs][rows], gate and up rows in turn."""
        e2m1, out = [0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6], {}
        for name, (kind, shape, data) in tensors.items():
            if name.endswith("_scales"):
                continue
            if name.endswith("_blocks"):
                name, (experts, rows, groups, _) = name[: -len("_blocks")], shape
                scales, cols = tensors[name + "_scales"][2], 32 * groups
                kind, shape, x = "BF16", [experts, cols, rows], array.array("f", bytes(4 * experts * cols * rows))
                for i, byte in enumerate(data):
                    row, c = divmod(2 * i, cols)
                    for k in range(2):
                        x[(row // rows * cols + c + k) * rows + row % rows] = e2m1[byte >> 4 * k & 15] * 2.0 ** (scales[i // 16] - 127)
                data = b"".join(x.tobytes()[i + 2 : i + 4] for i in range(0, 4 * len(x), 4))
            out[name] = kind, shape, data
        return out

    def in_fp8(suffix, high, broad):
        """Matrices of layers as E4M3 with a scale for each block of high rows and broad inputs; of high 1 and broad 0, for each row."""
        magnitude = [(m / 8 * 2.0**-6 if not e else (1 + m / 8) * 2.0 ** (e - 7)) for e in range(16) for m in range(8)][:127]
        middle = [(a + b) / 2 for a, b in zip(magnitude, magnitude[1:])]

        def change(tensors):
            out = {}
            for name, (kind, shape, data) in tensors.items():
                out[name] = kind, shape, data
                if kind != "BF16" or len(shape) != 2 or ".layers." not in name or name.endswith("gate.weight"):
                    continue
                (rows, cols), codes = shape, bytearray()
                wide = -(-cols // (broad or cols))
                scale = [(1 + 37 * i % 29 / 29) / 256 for i in range(-(-rows // high) * wide)]
                for i in range(rows * cols):
                    (v,) = struct.unpack("<f", b"\0\0" + data[2 * i : 2 * i + 2])
                    v /= scale[i // cols // high * wide + i % cols // (broad or cols)]
                    codes.append(bisect.bisect(middle, abs(v)) | (128 if v < 0 else 0))
                out[name] = "F8_E4M3", shape, bytes(codes)
                out[name + suffix] = "F32", [-(-rows // high), wide], array.array("f", scale).tobytes()
            return out

        return change

    def as_published(tensors):
        """DeepSeek V4 with experts drawn as codes of mxfp4, of 64 rows, and attention in FP8, all with powers of two as scales."""
        out, draw = {}, random.Random(1)
        for name, (kind, shape, data) in tensors.items():
            expert, stem = ".experts." in name, name[: -len(".weight")]
            if not expert and not re.search(r"\.attn\.(indexer\.)?w[a-z_]+\.weight|shared_experts|[eh]_proj", name):
                out[name] = kind, shape, data
                continue
            rows, cols = [64 if n == 16 and "expert" in name else n for n in shape]
            high, broad = (1, 32) if expert else (16, 16)
            codes = draw.randbytes(rows * cols // (2 if expert else 1))
            out[name] = ("I8", [rows, cols // 2], codes) if expert else ("F8_E4M3", [rows, cols], bytes(v & 0xBB for v in codes))
            shape = [-(-rows // high), -(-cols // broad)]
            out[stem + ".scale"] = "F8_E8M0", shape, bytes(draw.choices(range(121, 125), k=shape[0] * shape[1]))
        return out

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
    same(beside("falcon_h1"), "falcon_h1", 1e-3, theirs=file("falcon_h1/bf16"))
    if os.path.isdir(beside("falcon_h1")):
        tied = changed(beside("falcon_h1"), "falcon", tie_word_embeddings=True)
        rewritten(tied, lambda tensors: {name: t for name, t in tensors.items() if name != "lm_head.weight"})
        same(tied, "falcon_tied", 1e-3)
    refused(beside("falcon_h1"), "normed", "mamba_norm_before_gate: true", mamba_rms_norm=True, mamba_norm_before_gate=True)
    same(beside("falcon_h1"), "gated", 1e-3, mamba_norm_before_gate=True)
    refused(beside("falcon_h1"), "biased", "attention_bias: true", attention_bias=True)
    same(beside("deepseek_v3"), "deepseek_v3", theirs=file("deepseek_v3/bf16"))
    same(beside("deepseek_v3"), "kimi_k2", model_type="kimi_k2")
    same(in_tree("deepseek_mtp"), "deepseek_mtp")
    same(in_tree("dsa_mtp"), "dsa_mtp")
    same(in_tree("dsa_mtp"), "dsa_often", indexer_types=None, index_topk_freq=2, index_skip_topk_offset=1)
    refused(in_tree("dsa_mtp"), "dsa_pattern", "index_topk_pattern", indexer_types=None, index_topk_pattern="FSF")
    refused(in_tree("dsa_mtp"), "dsa_dense", "layer 2 has no experts", mlp_layer_types=["dense", "sparse", "dense"])
    same(beside("deepseek_v32"), "deepseek_v32")
    same(in_tree("qwen4_mtp"), "qwen4_mtp", 1e-3, full_attention_interval=3)

    def as_mlx(tensors):
        """As mlx-lm lays them out: convolutions turned, experts in stacks, norms as they are, and no draft head."""
        out = {}
        for name, (kind, shape, values) in tensors.items():
            at = "language_model." + name
            if name.endswith("conv1d.weight"):
                shape = [shape[0], shape[2], 1]
            if name.endswith("gate_up_proj"):
                half, n = len(values) // shape[0] // 2, shape[0]
                for i, part in enumerate(("gate", "up")):
                    rows = b"".join(values[(2 * e + i) * half : (2 * e + i + 1) * half] for e in range(n))
                    out[at.replace("experts.gate_up_proj", f"switch_mlp.{part}_proj.weight")] = kind, [n, shape[1] // 2, shape[2]], rows
            elif not name.startswith("mtp."):
                out[at.replace("experts.down_proj", "switch_mlp.down_proj.weight")] = kind, shape, values
        return out

    ids = os.path.join(tmp, "qwen4_mtp.json")
    mlx = rewritten(changed(in_tree("qwen4_mtp"), "qwen4_mlx"), as_mlx)
    check(logits(mlx, ids, mlx + ".logits") == logits(in_tree("qwen4_mtp"), ids, mlx + ".want"), "as mlx has it: other logits")
    same(beside("qwen4_exp"), "qwen4_exp", 1e-3, theirs=file("qwen4_exp/bf16"))
    same(beside("qwen4_exp_mtp"), "qwen4_exp_mtp", 1e-3, theirs=file("qwen4_exp_mtp/bf16"))
    refused(in_tree("qwen4_mtp"), "qwen4_often", "layer_types: layer 1", full_attention_interval=2)
    refused(in_tree("qwen4_mtp"), "qwen4_twice", "n-grams in one layer", full_attention_interval=3, ple_layer_ids=[1, 2])
    same(beside("glm4_moe_lite"), "glm4_moe_lite")
    same(beside("kimi_linear"), "kimi_linear", 1e-3)
    same(in_tree("glm5_mtp"), "glm5_mtp", 1e-3)
    same(beside("glm5_next"), "glm5_next", 1e-3, theirs=file("glm5_next/bf16"))
    same(in_tree("deepseek4"), "deepseek4")
    same(beside("deepseek_v4"), "deepseek_v4", theirs=file("deepseek_v4/bf16"), apart=("indexer_compressor_kv.weight", "indexer_compressor_gate.weight"))
    refused(in_tree("deepseek4"), "deepseek4_sigmoid", "scoring_func: sigmoid", scoring_func="sigmoid")
    refused(in_tree("deepseek4"), "deepseek4_few", "compress_ratios: 2, of 3 layers", compress_ratios=[0, 4])
    published = {"moe_intermediate_size": 64, "quantization_config": {"quant_method": "fp8", "weight_block_size": [16, 16]}}
    path = rewritten(changed(in_tree("deepseek4"), "v4_fp4", **published), as_published)
    same(path, "v4")
    first, again, fewer = (os.path.join(tmp, n + ".gguf") for n in ("v4", "v4_again", "v4_fewer"))
    for source, kind, out in ((first, "Q8_0", again), (path, "Q2_0", fewer)):
        code, _, err = run("quantize", source, "--type", kind, "--out", out)
        check(code == 0 and logits(out, os.path.join(tmp, "v4.json"), out + ".logits"), f"deepseek4: {kind}: {err}")
    stays = {n: t for n, t in Gguf(first).tensors.items() if t[1] in (39, 26)}
    check(len(stays) == 13 and all(Gguf(again).tensors[n] == t for n, t in stays.items()), "deepseek4: codes and tables of a file stay")
    code, _, err = run("quantize", path, "--type", "affine4g32", "--out", fewer + ".folder")
    kinds = run("inspect", fewer + ".folder")[1]
    check(code == 0 and re.search(r"mxfp4, groups of 32 +36 ", kinds) and re.search(r"affine4, groups of 32 +27 ", kinds), f"deepseek4: a folder: {err} {kinds}")
    check(logits(fewer + ".folder", os.path.join(tmp, "v4.json"), fewer + ".logits"), "deepseek4: a folder with its experts")
    kinds = run("inspect", fewer)[1]
    check(re.search(r"MXFP4, groups of 32 +6 ", kinds) and re.search(r"Q2_0, groups of 32 +9 ", kinds), f"deepseek4: fewer bits: {kinds}")
    has = {}  # of both halves: what a row of codes says, with its scales
    rewritten(changed(path, "v4_joined"), lambda tensors: has.update(tensors) or tensors)
    value = [(-1 if v & 128 else 1) * ((v & 7) / 8 * 2.0**-6 if not v & 120 else (1 + (v & 7) / 8) * 2.0 ** ((v >> 3 & 15) - 7)) for v in range(256)]
    want = []
    for i in range(32 * 64):
        row, (half, col) = i // 64, divmod(i % 64, 32)
        codes, scales = (has[f"mtp.0.{'eh'[half]}_proj.{what}"][2] for what in ("weight", "scale"))
        want.append(value[codes[32 * row + col]] * 2.0 ** (scales[row // 16 * 2 + col // 16] - 127))
    joined = Gguf(first).tensors["blk.3.nextn.eh_proj.weight"]
    check(joined == ([64, 32], 0, array.array("f", want).tobytes()), "deepseek4: the draft head's two matrices")
    lost = rewritten(changed(path, "v4_lost"), lambda tensors: {n: t for n, t in tensors.items() if n != "layers.1.ffn.experts.2.w2.scale"})
    refused(lost, "v4_refused", "layers.1.ffn.experts.2.w2.scale: missing")
    half = rewritten(changed(path, "v4_half"), lambda tensors: {n: t for n, t in tensors.items() if n != "mtp.0.h_proj.weight"})
    refused(half, "v4_no_half", "mtp.0.h_proj.weight: missing")
    refused(in_tree("glm5_mtp"), "glm5_heads", "linear_attn_config.num_heads: 4",
            linear_attn_config={"num_heads": 4, "head_dim": 8, "short_conv_kernel_size": 4, "gate_lower_bound": -5.0})
    refused(beside("kimi_linear"), "turning", "mla_use_nope: false", mla_use_nope=False)

    same(beside("jamba"), "jamba", 1e-3)
    same(beside("rwkv7"), "rwkv7")
    refused(beside("rwkv7"), "heads", "norm_eps: 2e-05", norm_eps=2e-5)
    refused(beside("jamba"), "window", "sliding_window", sliding_window=8)

    def spoiled(name, at, skip, value, what):
        """The file with a number behind that text replaced."""
        path = os.path.join(tmp, name + ".gguf")
        if not os.path.exists(path):
            return
        data = bytearray(open(path, "rb").read())
        i = data.index(at) + len(at) + skip
        data[i : i + len(value)] = value
        open(path + ".spoiled", "wb").write(data)
        code, _, err = run("inspect", path + ".spoiled")
        check(code == 1 and what in err, f"{name}: {what}: {code} {err}")

    number = lambda v, n: v.to_bytes(n, "little")
    spoiled("jamba", b"jamba.attention.head_count_kv", 16, number(1, 4), "of every 2 one is such")
    spoiled("jamba", b"jamba.ssm.inner_size", 4, number(100, 4), "100 is not a multiple of the width")
    spoiled("rwkv7", b"blk.1.time_mix_lerp_fused.weight", 4, number(64, 8) + number(2, 8), "are not six vectors")
    spoiled("rwkv7", b"blk.1.time_mix_lerp_fused.weight", 4 + 16, number(2, 8) + number(3, 8), "are not six vectors")

    # FP8: blocks that end within heads, and a scale for each row; a matrix without scales.
    block = {"quant_method": "fp8", "weight_block_size": [48, 32]}
    packed = {"quant_method": "compressed-tensors", "config_groups": {"group_0": {"weights": {"num_bits": 8, "type": "float"}}}}
    for base, name, config, change in ((beside("glm4_moe_lite"), "blocks", block, in_fp8("_scale_inv", 48, 32)),
                                       (in_tree("qwen2_moe"), "rows", packed, in_fp8("_scale", 1, 0))):
        if os.path.isdir(base):
            path = rewritten(changed(base, name + "_fp8", quantization_config=config), change)
            same(path, name)
            lost = rewritten(changed(path, name + "_lost"), lambda tensors: {n: t for n, t in tensors.items() if not n.endswith("mlp.down_proj.weight_scale_inv")
                                                                            and not n.endswith("q_proj.weight_scale")})
            refused(lost, name + "_refused", "is in FP8 and has no scales")
    same(os.path.join(golden, "deepseek_v3/hf-fp8"), "deepseek_fp8")
    for kind in ("fp8-block", "ct-fp8"):
        same(os.path.join(tree, "olmo2", kind), "olmo2_" + kind)

    # gpt-oss: GGUF has no key for truncate, which changes angles; its codes stay, whatever the type of the rest.
    yarn = {"rope_type": "yarn", "factor": 32.0, "beta_fast": 32.0, "beta_slow": 1.0, "original_max_position_embeddings": 4096}
    same(beside("gpt_oss"), "gpt_oss", theirs=file("gpt_oss/bf16"), rope_scaling=yarn)
    same(beside("gpt_oss"), "gpt_oss_ramp", 0.2)
    if os.path.isdir(beside("gpt_oss")):
        again, plain = (os.path.join(tmp, n + ".gguf") for n in ("oss_again", "oss_plain"))
        ids, first = (os.path.join(tmp, "gpt_oss." + n) for n in ("json", "gguf"))
        for what, source, out in (("a file", first, again), ("experts in BF16", rewritten(changed(os.path.join(tmp, "gpt_oss"), "oss_unpacked"), unpacked), plain)):
            code, _, err = run("quantize", source, "--type", "F32" if out == plain else "Q8_0", "--out", out)
            check(code == 0, f"gpt_oss: {what}: {err}")
        code, _, err = run("quantize", beside("gpt_oss"), "--type", "F32", "--out", os.path.join(tmp, "oss_warned.gguf"))
        check(code == 0 and "truncate: false" in err, f"gpt_oss: {code} {err}")
        stays = {n: t for n, t in Gguf(first).tensors.items() if t[1] == 39}
        check(len(stays) == 12 and all(Gguf(again).tensors[n] == t for n, t in stays.items()), "gpt_oss: codes of a file stay")
        check(logits(plain, ids, plain + ".logits") == open(first + ".logits", "rb").read(), "gpt_oss: experts in BF16 are the same numbers")

sys.exit(1 if failures else 0)
