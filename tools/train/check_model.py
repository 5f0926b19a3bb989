"""Prove the training graph: chunked delta rule against the recurrence, and logits against golden vectors.

    /usr/bin/python3 tools/train/check_model.py GOLDEN_DIR
"""
import json
import sys

import torch

import st
from model import Batch, Model, delta_chunked, delta_recurrent


def load_hf(folder):
    cfg = json.load(open(folder + "/config.json"))
    tc = dict(cfg.get("text_config", cfg))
    tc["tie_word_embeddings"] = cfg["tie_word_embeddings"]
    w = st.load(folder + "/model.safetensors")
    if not any(k.startswith("mtp.") for k in w):
        tc["mtp_num_hidden_layers"] = 0
    m = Model(tc)
    sd = {}
    for k, v in w.items():
        for p in ("model.language_model.", "model."):
            if k.startswith(p):
                k = k[len(p):]
                break
        sd[k] = torch.tensor(v)
    m.load_state_dict(sd)
    return m


def run(m, ids):
    T = len(ids)
    pad = -T % 64
    x = torch.tensor([list(ids) + [0] * pad])
    doc = torch.tensor([[0] * T + [1] * pad])
    b = Batch(doc, m.cfg)
    f = m.hidden(x, b)
    return m.logits(f)[0, :T], f, x, b


def main():
    root = sys.argv[1]
    torch.manual_seed(0)
    B, T, Hk, Hv, d = 2, 256, 2, 4, 64
    q = torch.nn.functional.normalize(torch.randn(B, T, Hk, d), dim=-1) * d ** -0.5
    k = torch.nn.functional.normalize(torch.randn(B, T, Hk, d), dim=-1)
    v, g, beta = torch.randn(B, T, Hv, d), -torch.rand(B, T, Hv) * 2, torch.rand(B, T, Hv)
    g[:, 100] = -60
    print("chunked vs recurrent", float((delta_chunked(q, k, v, g, beta) - delta_recurrent(q, k, v, g, beta)).abs().max()))
    with torch.no_grad():
        for name in ("qwen3_5_tied", "qwen3_5"):
            folder = f"{root}/{name}/hf-f32"
            m = load_hf(folder)
            for gname, key in (("golden", None), ("golden_long", "positions")):
                z = st.load(f"{folder}/{gname}.safetensors")
                out = run(m, z["prompt_ids"].tolist())[0]
                if key:
                    out = out[torch.tensor(z[key]).long()]
                ref = [v for k, v in z.items() if k.endswith("logits") and v.shape[0] == out.shape[0]][0]
                print(name, gname, "max logit difference", float((out - torch.tensor(ref)).abs().max()))
            if m.mtp is not None:
                z = st.load(f"{root}/_mtp/{name}.safetensors")
                meta = json.load(open(f"{root}/_mtp/{name}.json"))
                ids = meta["prompt_ids"]
                _, f, x, b = run(m, ids)
                nxt = torch.roll(x, -1, 1)
                n = len(ids)
                print({k: (v if not isinstance(v, list) or len(v) < 8 else len(v)) for k, v in meta.items()})
                if z["mtp_logits"].shape[0] == n:
                    nxt[0, n - 1] = meta.get("next_id", meta.get("first_token", 0))
                print("target hidden", float((f[0, :n] - torch.tensor(z["target_hidden"])).abs().max()))
                lo = m.logits(m.mtp_hidden(f, nxt, b))[0, :n]
                d = (lo - torch.tensor(z["mtp_logits"])).abs()
                print("mtp logits", float(d[:n - 1].max()), "last", float(d[n - 1].max()))


if __name__ == "__main__":
    main()
