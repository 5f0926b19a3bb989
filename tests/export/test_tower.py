#!/usr/bin/env python3
"""weft quantize --mmproj-out: a folder's tower as a projector file has the tensors and keys that llama.cpp's converter writes of the
same folder, whatever layout the folder has, and what cannot be written is refused.  Logits are compared by
tests/store/projector_of_folder.py."""
import json, os, re, sys, tempfile

import numpy as np

from exportkit import Gguf, check, failures, models, run, shared

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "store"))
from gguf_of_folder import all_tensors  # noqa: E402
from projector_of_folder import MARK, many_rows, softplus, with_tower, write_tensors, write_tokenizer  # noqa: E402

tiny = os.path.abspath(os.path.join(models, "weft-tiny"))
golden = os.path.join(os.environ.get("WEFT_SHARED", shared), "golden")
pixtral = os.path.join(HERE, "..", "golden", "pixtral", "hf-bf16")


def made(folder, tensors, config, kind="F32", marks=("<|image_pad|>",)):
    """A folder of these; as many rows of the embedding as its tokenizer is told of."""
    os.makedirs(folder)
    json.dump(config, open(os.path.join(folder, "config.json"), "w"))
    write_tokenizer(folder, list(marks), config.get("text_config", config)["vocab_size"])
    write_tensors(os.path.join(folder, "model.safetensors"), tensors, kind)
    return folder


def quantize(folder, out, *args):
    return run("quantize", folder, "--type", "F32", "--out", out, *args)


def tower_of(folder, what):
    """The projector file of the folder, and the text's removed."""
    code, out, err = quantize(folder, folder + ".gguf", "--mmproj-out", folder + "-mmproj.gguf")
    check(code == 0, f"{what}: {err}")
    return Gguf(folder + "-mmproj.gguf") if code == 0 else None


def inspected(what, folder, files, sounds):
    """A folder and the two files that were written of it are told alike, and planned alike."""
    code, out, err = quantize(folder, files + ".gguf", "--mmproj-out", files + "-mmproj.gguf")
    ways = ((folder,), (files + ".gguf", "--mmproj", files + "-mmproj.gguf"))
    told = [json.loads(run("inspect", *way, "--json")[1] or "{}") for way in ways]
    for report in told:
        check(report.get("sounds", {}) and all(report["sounds"].get(k) == v for k, v in sounds.items()), f"{what}: {report.get('sounds')}")
        check(not any(re.search("audio|vision|^(a|v|mm)[.]", r["first"]) for r in report.get("ignored", [])), f"{what}: {report.get('ignored')}")
    for member in "images", "sounds":
        a, b = ({k: v for k, v in (report.get(member) or {}).items() if k != "bytes"} for report in told)     # F32 where the folder has less
        check(a and a == b, f"{what}: {member}: {b} for {a}")
    a, b = ({k: report.get("memory", {}).get(k) for k in ("context", "kv_bytes_per_token", "state_bytes_per_sequence")} for report in told)
    check(a["kv_bytes_per_token"] and a == b, f"{what}: memory: {b} for {a}")
    for way in ways:
        plan = run("inspect", *way, "--memory")[1]
        check("keys and values" in plan and "  all  " in plan, f"{what}: {plan}")


with tempfile.TemporaryDirectory() as tmp:
    at = lambda name: os.path.join(tmp, name)

    # mlx's layout of the same tower: another prefix, colours last in the kernel.
    tensors, config = with_tower(all_tensors(tiny), json.load(open(os.path.join(tiny, "config.json"))))
    config["image_token_id"] = MARK
    plain = tower_of(made(at("plain"), tensors, config), "a folder")
    last = {}
    for name, v in tensors.items():
        name = name.replace("model.visual.", "vision_tower.")
        last[name] = np.ascontiguousarray(v.transpose(0, 2, 3, 4, 1)) if name.endswith("patch_embed.proj.weight") else v
    other = tower_of(made(at("last"), last, config), "mlx's layout")
    check(plain and other and plain.tensors == other.tensors, "mlx's layout is the same file")
    check(plain and plain.tensors["v.patch_embd.weight"][:2] == ([16, 16, 3, 32], 0), "a kernel for a frame")
    check(plain and "clip.vision.temporal_patch_size" not in plain.pairs, "two frames are no key")

    # One frame: the other kernel is zeros, and a key says so.
    one = dict(tensors)
    name = "model.visual.patch_embed.proj.weight"
    one[name] = tensors[name][:, :, :1]
    single = json.loads(json.dumps(config))
    single["vision_config"]["temporal_patch_size"] = 1
    blank = tower_of(made(at("one"), one, single), "one frame")
    check(blank and blank.pairs.get("clip.vision.temporal_patch_size") == 1, "one frame is a key")
    check(blank and not any(blank.tensors["v.patch_embd.weight.1"][2]) and any(blank.tensors["v.patch_embd.weight"][2]), "zeros beside it")

    # Pixtral 12B: the keys that its text leaves out, and the mark between rows.
    marks = ["[IMG]", "[IMG_BREAK]", "[IMG_END]"]
    t12, c12 = all_tensors(pixtral), json.load(open(os.path.join(pixtral, "config.json")))
    for name in "language_model.model.embed_tokens.weight", "language_model.lm_head.weight":
        t12[name] = np.concatenate([t12[name]] * 5).astype("<f4")
    c12["text_config"]["vocab_size"], c12["image_token_index"] = 320, MARK
    seen = tower_of(made(at("pixtral"), t12, c12, "BF16", marks), "Pixtral 12B")
    row = t12["language_model.model.embed_tokens.weight"][MARK + 1]
    check(seen and seen.tensors["v.token_embd.img_break"][2] == row.astype("<f4").tobytes(), "the mark between rows")
    check(seen and seen.pairs.get("clip.use_silu") and "clip.vision.spatial_merge_size" not in seen.pairs, "its keys")
    check(seen and seen.tensors["mm.1.weight"][1] == 30 and seen.tensors["mm.1.bias"][1] == 0, "types stay, vectors are F32")
    text = Gguf(at("pixtral.gguf")) if seen else None
    check(text and (text.pairs["llama.attention.head_count"], text.pairs["llama.attention.head_count_kv"]) == (32, 8), "MistralConfig's heads")

    # Refused, before anything is written.
    def refused(what, folder, *args, code=1):
        got, out, err = quantize(folder, at("x.gguf"), *args)
        left = [f for f in os.listdir(tmp) if f.startswith(("x.gguf", "x-mmproj"))]
        check(got == code and what in err and "Sanitizer" not in err and not left, f"{what}: {got} {err} {left}")

    to = ("--mmproj-out", at("x-mmproj.gguf"))
    refused("has no tower for --mmproj-out", tiny if "vision_config" not in json.load(open(os.path.join(tiny, "config.json"))) else
            made(at("blind"), {n: v for n, v in tensors.items() if ".visual." not in n},
                 {k: v for k, v in config.items() if k != "vision_config"}), *to)
    refused("is a GGUF file, whose tower is another", at("plain.gguf"), *to)
    refused("is there already", at("plain"), "--mmproj-out", at("plain-mmproj.gguf"), code=2)
    refused("has its tower itself", at("plain"), "--type", "affine4", *to, code=2)
    refused("no token [IMG_BREAK]", made(at("unmarked"), t12, c12, "BF16", ["[IMG]"]), *to)
    refused("sliding_window: missing, which is 4096 here",
            made(at("window"), t12, {**c12, "text_config": {k: v for k, v in c12["text_config"].items() if k != "sliding_window"}}, "BF16", marks), *to)
    more = dict(tensors)
    more["model.visual.blocks.0.attn.gate.weight"] = np.zeros((4, 4), "<f4")
    refused("model.visual.blocks.0.attn.gate.weight: projector files have no name for it", made(at("more"), more, config), *to)
    more = dict(tensors)
    more["model.visual.blocks.2.norm1.weight"] = np.zeros(32, "<f4")
    refused("blocks.2.norm1.weight: projector files have no name for it", made(at("block"), more, config), *to)
    short = dict(tensors)
    short["model.visual.merger.linear_fc2.weight"] = np.zeros((64, 64), "<f4")
    refused("merger.linear_fc2.weight: is [64, 64]", made(at("short"), short, config), *to)

    # The converter's own file of the same folder.
    folder, theirs = (os.path.join(golden, n) for n in ("qwen3_5_vl/hf-f32", "_gguf/models/qwen3_5_vl/mmproj-f32.gguf"))
    if not os.path.isfile(theirs):
        print(f"skipped the converter's file: {theirs} missing")
        sys.exit(1 if failures else 77)
    windows = os.path.join(golden, "_vision2/qwen2_5_vl/hf-f32")
    t25, c25 = all_tensors(windows), json.load(open(os.path.join(windows, "config.json")))
    for blocks in [0, 3], [1], [1, 2, 3]:
        c25["vision_config"]["fullatt_block_indexes"] = blocks
        refused("fullatt_block_indexes: projector files have every n-th block", made(at("windows%d" % len(blocks)), t25, c25), *to)
    c25["vision_config"]["fullatt_block_indexes"] = [1, 3]
    whole = tower_of(made(at("every"), t25, c25), "every second block")
    check(whole and whole.pairs["clip.vision.n_wa_pattern"] == 2, "n_wa_pattern")
    v = t25["visual.blocks.3.attn.qkv.bias"]
    check(whole and whole.tensors["v.blk.3.attn_k.bias"][2] == v[len(v) // 3:len(v) // 3 * 2].astype("<f4").tobytes(), "keys of one matrix")
    deep = os.path.join(golden, "_vision2/qwen3_vl/hf-f32")
    t3, c3 = all_tensors(deep), json.load(open(os.path.join(deep, "config.json")))
    c3["vision_config"]["deepstack_visual_indexes"] = [0, 2, 3]
    seen = tower_of(made(at("deep"), t3, c3), "deepstack")
    check(seen and seen.pairs["clip.vision.is_deepstack_layers"] == [1, 0, 1, 1] and "v.deepstack.2.fc1.weight" in seen.tensors
          and "v.deepstack.1.fc1.weight" not in seen.tensors, "numbers of blocks")
    check(Gguf(at("deep.gguf")).pairs.get("qwen3vl.n_deepstack_layers") == 3, "the text's count")

    # Gemma 4 12B: the tensors of a file that others made of the folder, but for places, of which 280 rows of an image want more.
    marks = ["<|image>", "<image|>", "<|image|>", "<|audio>", "<audio|>", "<|audio|>"]
    unified = os.path.join(golden, "gemma4_unified/hf-bf16")
    tu, cu = all_tensors(unified), json.load(open(os.path.join(unified, "config.json")))
    many_rows(tu, cu["text_config"], ("model.language_model.embed_tokens.weight",))
    refused("max_soft_tokens: projector files have no key for others than 280", made(at("few"), tu, cu, "BF16", marks), *to)
    places = "model.vision_embedder.pos_embedding"
    tu[places] = np.concatenate([tu[places]] * 15)
    del cu["vision_config"]["num_soft_tokens"]
    cu["vision_config"]["mm_posemb_size"] *= 15
    ours, other = tower_of(made(at("unified"), tu, cu, "BF16", marks), "Gemma 4 12B"), Gguf(os.path.join(golden, "_gguf/models/gemma4_unified/mmproj.gguf"))
    check(ours and set(ours.tensors) == set(other.tensors), "names of the 12B")
    for name in other.tensors if ours else ():
        if name != "v.position_embd.weight":
            check(ours.tensors[name] == other.tensors[name], f"{name} of the 12B")
    for key in other.pairs if ours else ():
        if not key.startswith(("general.", "clip.vision.image_size")):
            check(ours.pairs.get(key) == other.pairs[key], f"{key}: {ours.pairs.get(key)} for {other.pairs[key]}")

    inspected("Gemma 4 12B", at("unified"), at("told"), {"family": "gemma4_unified", "blocks": 0, "samples": 640, "seconds_max": 0})

    # Its small relatives hear by a tower, which mlx has with channels last.
    seeing, hearing = os.path.join(golden, "_vision2/gemma4_e/hf-f32"), os.path.join(golden, "gemma4_sound/hf-bf16")
    te, ce = all_tensors(seeing), json.load(open(os.path.join(seeing, "config.json")))
    heard = {n: v for n, v in all_tensors(hearing).items() if "audio" in n}
    name = "model.embed_audio.embedding_projection.weight"
    heard[name] = np.ones((ce["text_config"]["hidden_size"], heard[name].shape[1]), "<f4")
    te.update(heard)
    ce["audio_config"] = json.load(open(os.path.join(hearing, "config.json")))["audio_config"]
    del ce["vision_config"]["default_output_length"]
    ours = tower_of(made(at("hears"), te, ce, marks=marks), "E2B")
    scale = heard["model.audio_tower.layers.1.self_attn.per_dim_scale"]
    check(ours and ours.tensors["a.blk.1.per_dim_scale.weight"][2] == softplus(scale).tobytes(), "scales of queries")
    check(ours and ours.tensors["a.conv1d.1.weight"][0] == [3, 3, 128, 3] and ours.pairs["clip.audio.attention.head_count"] == 3, "sizes of an ear")
    inspected("E2B", at("hears"), at("heard"), {"family": "gemma4_audio", "blocks": 2, "width": 24, "samples": 640, "seconds_max": 30})
    last = {}
    for name, v in te.items():
        name = name.removeprefix("model.") if "tower." in name or "embed_" in name and "tokens" not in name else name
        last[name] = np.ascontiguousarray(v.transpose(0, 2, 3, 1)) if v.ndim == 4 else v.transpose(0, 2, 1) if "depthwise" in name else v
    mlx = tower_of(made(at("hears-last"), last, ce, marks=marks), "E2B, mlx's layout")
    check(ours and mlx and ours.tensors == mlx.tensors, "mlx's layout of an ear")
    for member, v in ("attention_logit_cap", 30), ("attention_context_left", 14), ("residual_weight", 1):
        refused(member + ": %g, and projector files have no key for others than" % v, made(at(member), te, {**ce, "audio_config": {**ce["audio_config"], member: v}}, marks=marks), *to)
    refused("use_clipped_linears: its tensors say the contrary",
            made(at("unbounded"), te, {**ce, "audio_config": {**ce["audio_config"], "use_clipped_linears": False}}, marks=marks), *to)

    code, out, err = quantize(folder, at("golden.gguf"), "--mmproj-out", at("golden-mmproj.gguf"))
    check(code == 0, err)
    ours, theirs = Gguf(at("golden-mmproj.gguf")), Gguf(theirs)
    check(set(ours.tensors) == set(theirs.tensors), f"names {set(ours.tensors) ^ set(theirs.tensors)}")
    for name in theirs.tensors:
        check(ours.tensors.get(name) == theirs.tensors[name], f"{name} of the converter")
    own = ("clip.vision.image_min_pixels", "clip.vision.image_max_pixels")
    for key in set(ours.pairs) | set(theirs.pairs):
        if not key.startswith(("general.name", "general.size_label") + own):
            check(ours.pairs.get(key) == theirs.pairs.get(key), f"{key}: {ours.pairs.get(key)} for {theirs.pairs.get(key)}")

sys.exit(1 if failures else 0)
