"""Prove the graphs of the draft heads: taps, and the first guesses' logits, against golden vectors.

    /usr/bin/python3 tools/train/check_heads.py GOLDEN_DIR
"""
import json
import sys
import types

import torch

import heads
import st
from check_model import load_hf, run


def weights(folder):
    return {k: torch.tensor(v) for k, v in st.load(folder + "/model.safetensors").items()}


def sizes(config, taps, block=0, mask=0):
    heads.HEADS, heads.KV, heads.D = config["num_attention_heads"], config["num_key_value_heads"], config["head_dim"]
    heads.TAPS, heads.BLOCK, heads.MASK = taps, block, mask


def eagle(m, folder):
    config, z = json.load(open(folder + "/config.json")), st.load(folder + "/draft.safetensors")
    sizes(config, [i - 1 for i in config["eagle_config"]["eagle_aux_hidden_state_layer_ids"]])
    w = weights(folder)
    tokens = (torch.arange(len(w["d2t"])) + w.pop("d2t")).tolist()
    w.pop("t2d")
    heads.Eagle.theta, heads.Eagle.inner = config["rope_theta"], config["intermediate_size"]
    h = heads.Eagle(m, tokens, torch.float32)
    h.load_state_dict(w)
    given, fed, said = (torch.tensor(z["round0." + n]) for n in ("hidden_fed", "tokens_fed", "draft_ids"))
    n, ahead = len(fed), 3
    # Row t is made of token t and of what was given for the one before; the first guesses follow the true tokens.
    ids = torch.cat([torch.zeros(1, dtype=torch.long), fed.long(), said.long()[:ahead - 1]])[None]
    near = torch.arange(n, n + ahead)[None]
    x = types.SimpleNamespace(ids=ids, embed=m.embed_tokens.weight[ids], begin=torch.zeros_like(ids), near=near,
                              taps=torch.cat([given, torch.zeros(ids.shape[1] - n, given.shape[1])])[None],
                              before=[(near - n - d).clamp(min=0) for d in range(ahead)])
    out = torch.cat([h.logits(rows[:, k]) for k, rows in enumerate(h.unroll(x, ahead))])
    print(folder, "three guesses", float((out - torch.tensor(z["round0.draft_logits"])[:ahead]).abs().max()))


def flash(m, folder, kind):
    config, z = json.load(open(folder + "/config.json")), st.load(folder + "/draft.safetensors")
    own = config["dflash_config"]
    sizes(config, own["target_layer_ids"], config.get("block_size") or own["block_size"], own["mask_token_id"])
    heads.LAYERS, heads.Flash.inner = config["num_hidden_layers"], config["intermediate_size"]
    heads.Flash.theta = config.get("rope_theta") or config["rope_parameters"]["rope_theta"]
    if kind is heads.Flash2:
        heads.Flash.window, heads.CONV, heads.GROUP = config["sliding_window"], own["conv_kernel_size"], own["conv_group_size"]
        heads.RANK, heads.TOP = own["selector_rank"], own["selector_top_k"]
    h = kind(m, torch.float32)
    h.load_state_dict(weights(folder))
    given, block = torch.tensor(z["round0.hidden_fed"])[None], torch.tensor(z["round0.block_ids"]).long()
    zero = torch.zeros(1, 1, dtype=torch.long)
    x = h(given, block[:1][None], zero, zero + given.shape[1])[0, 0]
    print(folder, "a block", float((m.logits(x) - torch.tensor(z["round0.draft_logits"])).abs().max()))
    if kind is heads.Flash2:
        said = torch.tensor(z["round0.draft_ids"]).long()
        print(folder, "chosen", bool((h.says(x, torch.cat([block[:1], said[:-1]]))[1] == said).all()))


def main():
    root = sys.argv[1]
    with torch.no_grad():
        m = load_hf(root + "/qwen3_5/hf-f32")
        z = st.load(root + "/_draft/target_qwen3_5.safetensors")
        ids = z["ids"].reshape(-1).tolist()
        _, _, x, b = run(m, ids)
        taps = heads.taps_of(m, x, b)[0][0, :len(ids)]
        want = torch.cat([torch.tensor(z["L%02d.out" % i]).reshape(len(ids), -1) for i in heads.TAPS], 1)
        print("taps", float((taps - want).abs().max()))
        eagle(m, root + "/_draft/eagle3_sglang")
        flash(m, root + "/_draft/dflash", heads.Flash)
        flash(m, root + "/_draft/dflash2", heads.Flash2)


if __name__ == "__main__":
    main()
