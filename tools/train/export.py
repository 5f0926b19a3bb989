"""Write a checkpoint as model folders: Hugging Face layout in bf16, and MLX layout with affine 4 or 8 bit groups of 64.

    /usr/bin/python3 tools/train/export.py tools/train/runs/tiny/last.pt models/weft-tiny
    /usr/bin/python3 tools/train/export.py tools/train/runs/tiny/last.pt models/weft-tiny-4bit --bits 4
"""
import argparse
import json
import os
import shutil

import numpy as np
import torch

import st
import train
from tok import SPECIALS, Tokenizer

GROUP = 64
CENTRED = ("input_layernorm.weight", "post_attention_layernorm.weight", "q_norm.weight", "k_norm.weight", "pre_fc_norm_embedding.weight", "pre_fc_norm_hidden.weight")


def quantise(w, bits):
    """float32 [out, in] -> packed uint32, scales, biases (float32, not yet rounded). The rule of MLX: the value of largest
    magnitude in a group is a code point, and so is zero."""
    n = 2 ** bits - 1
    g = w.reshape(w.shape[0], -1, GROUP).astype(np.float32)
    lo, hi = g.min(-1, keepdims=True), g.max(-1, keepdims=True)
    neg = np.abs(lo) > np.abs(hi)
    s = np.maximum((hi - lo) / np.float32(n), np.float32(1e-7))
    s = np.where(neg, s, -s)
    e = np.where(neg, lo, hi)
    q0 = np.rint(e / s)
    ok = q0 != 0
    s = np.where(ok, e / np.where(ok, q0, 1), s).astype(np.float32)
    b = np.where(ok, e, 0).astype(np.float32)
    q = np.clip(np.rint((g - b) / s), 0, n).astype(np.uint32).reshape(w.shape)
    per = 32 // bits
    q = q.reshape(w.shape[0], -1, per)
    packed = np.zeros(q.shape[:2], np.uint32)
    for k in range(per):
        packed |= q[:, :, k] << np.uint32(k * bits)
    return packed, s[..., 0], b[..., 0]


def dequantise(packed, s, b, bits):
    per = 32 // bits
    q = np.stack([(packed >> np.uint32(k * bits)) & np.uint32(2 ** bits - 1) for k in range(per)], -1).reshape(packed.shape[0], -1).astype(np.float32)
    return q * np.repeat(s, GROUP, 1) + np.repeat(b, GROUP, 1)


def bf16(x):
    return st.bf16_value(st.bf16_bits(x))


def hf_tensors(sd):
    out = {}
    for name, p in sd.items():
        x = p.detach().float().numpy()
        full = name if name.startswith("mtp.") or name.startswith("lm_head.") else "model.language_model." + name
        if name.endswith("A_log") or name.endswith("linear_attn.norm.weight"):
            out[full] = ("F32", x)
        else:
            out[full] = ("BF16", st.bf16_bits(x))
    return out


def mlx_tensors(sd, bits):
    out = {}
    for name, p in sd.items():
        if name.startswith("mtp."):
            continue
        x = bf16(p.detach().float().numpy())        # what the bf16 folder holds is what is quantised
        full = "language_model.model." + name
        if name.endswith("A_log"):
            out[full] = ("F32", p.detach().float().numpy())
        elif name.endswith("conv1d.weight"):
            out[full] = ("BF16", st.bf16_bits(x.transpose(0, 2, 1)))
        elif x.ndim == 2:
            w, s, b = quantise(x, bits)
            base = full[:-len(".weight")]
            out[base + ".weight"], out[base + ".scales"], out[base + ".biases"] = ("U32", w), ("BF16", st.bf16_bits(s)), ("BF16", st.bf16_bits(b))
        else:
            if name.endswith(CENTRED) or name == "norm.weight":
                x = 1 + x
            out[full] = ("BF16", st.bf16_bits(x))
    return out


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("checkpoint")
    ap.add_argument("folder")
    ap.add_argument("--bits", type=int, default=0)
    ap.add_argument("--tokenizer", default="models/weft-tiny")
    a = ap.parse_args()
    z = torch.load(a.checkpoint)
    size = "tiny" if "layers.7.mlp.up_proj.weight" in z["model"] else "draft"
    c = train.config(size)
    os.makedirs(a.folder, exist_ok=True)
    if os.path.abspath(a.folder) != os.path.abspath(a.tokenizer):
        for f in ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja"):
            shutil.copy(os.path.join(a.tokenizer, f), a.folder)
    t = Tokenizer.load(a.folder)
    ids = {s: t.special[s] for s in SPECIALS}
    text = {"attention_bias": False, "attention_dropout": 0.0, "attn_output_gate": True, "dtype": "bfloat16", "eos_token_id": ids["<|endoftext|>"], "full_attention_interval": c["layer_types"].index("full_attention") + 1,
            "hidden_act": "silu", "initializer_range": 0.02, "mamba_ssm_dtype": "float32", "max_position_embeddings": 4096, "mlp_only_layers": [], "model_type": "qwen3_5_text",
            "mtp_use_dedicated_embeddings": False, "use_cache": True, **c}
    if a.bits:
        text["mtp_num_hidden_layers"] = 0
    config = {"architectures": ["Qwen3_5ForConditionalGeneration"], "eos_token_id": [ids["<|im_end|>"], ids["<|endoftext|>"]], "image_token_id": ids["<|image_pad|>"], "model_type": "qwen3_5"}
    if a.bits:
        q = {"group_size": GROUP, "bits": a.bits, "mode": "affine"}
        config.update(quantization=q, quantization_config=q)
    config.update(text_config=text, tie_word_embeddings=True, video_token_id=ids["<|video_pad|>"], vision_end_token_id=ids["<|vision_end|>"], vision_start_token_id=ids["<|vision_start|>"])
    json.dump(config, open(a.folder + "/config.json", "w"), indent=2)
    open(a.folder + "/config.json", "a").write("\n")
    # the answers are exact words and numbers: the best guess is the right default
    gen = {"do_sample": False, "eos_token_id": [ids["<|im_end|>"], ids["<|endoftext|>"]], "pad_token_id": ids["<|endoftext|>"], "temperature": 0.0}
    json.dump(gen, open(a.folder + "/generation_config.json", "w"), indent=2)
    open(a.folder + "/generation_config.json", "a").write("\n")
    tensors = mlx_tensors(z["model"], a.bits) if a.bits else hf_tensors(z["model"])
    st.save(a.folder + "/model.safetensors.new", tensors)
    os.replace(a.folder + "/model.safetensors.new", a.folder + "/model.safetensors")
    print(a.folder, len(tensors), "tensors", os.path.getsize(a.folder + "/model.safetensors"), "bytes, step", z["meta"]["step"])


if __name__ == "__main__":
    main()
