"""Adapters (LoRA) of random numbers, for tests with a model folder."""
import json
import os
import random
import struct


def tensors(path):
    """Shapes by name, of packed ones as they are unpacked."""
    with open(path, "rb") as f:
        head = json.loads(f.read(struct.unpack("<Q", f.read(8))[0]))
    with open(os.path.join(os.path.dirname(path), "config.json")) as f:
        bits = json.load(f).get("quantization", {}).get("bits", 32)
    return {k: v["shape"][:-1] + [v["shape"][-1] * 32 // bits] if v["dtype"] == "U32" else v["shape"]
            for k, v in head.items() if k != "__metadata__"}


def adapter(model, path, seed, rank=4):
    """A folder as PEFT leaves it: for every projection of the model, random numbers."""
    rng, head, data = random.Random(seed), {}, b""
    for name, shape in sorted(tensors(os.path.join(model, "model.safetensors")).items()):
        if not name.endswith("_proj.weight") or len(shape) != 2 or name.startswith("mtp."):
            continue
        for side, dim in ("A", [rank, shape[1]]), ("B", [shape[0], rank]):
            scale = (1 / shape[1] ** 0.5) if side == "A" else 0.05
            raw = struct.pack("<%df" % (dim[0] * dim[1]), *(rng.uniform(-scale, scale) for _ in range(dim[0] * dim[1])))
            head["base_model.model.%s.lora_%s.weight" % (name[:-len(".weight")], side)] = {
                "dtype": "F32", "shape": dim, "data_offsets": [len(data), len(data) + len(raw)]}
            data += raw
    text = json.dumps(head).encode()
    os.mkdir(path)
    with open(os.path.join(path, "adapter_model.safetensors"), "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text + data)
    with open(os.path.join(path, "adapter_config.json"), "w") as f:
        json.dump({"peft_type": "LORA", "r": rank, "lora_alpha": 2 * rank, "bias": "none"}, f)
