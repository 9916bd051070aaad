"""The official checkpoint layout: tensor names, dtypes and shards, both ways."""
import json
import os
import struct

import numpy as np
import torch

import quant
from layers import EngramTable, Experts, Fp8

SHARD_BYTES = 10_000_000


def kinds(*modules):
    """Official tensor name -> (how it is stored, parameter)."""
    out = {}
    for root in modules:
        special = {}
        for path, m in root.named_modules():
            kind = {Fp8: "fp8", EngramTable: "rows", Experts: "fp4"}.get(type(m))
            if kind:
                special.update({f"{path}.{n}": kind for n, _ in m.named_parameters(recurse=False)})
        for name, p in root.state_dict(keep_vars=True).items():
            official = name.replace("hc_attn.", "hc_attn_").replace("hc_ffn.", "hc_ffn_")
            f32 = official.endswith(("attn_sink", "gate.bias")) or ".hc_" in official
            out[official] = (special.get(name, "f32" if f32 else "bf16"), p)
    return out


def _raw(x):
    return np.ascontiguousarray(x.detach().cpu().numpy()).tobytes()


def encode(name, kind, p):
    """[(name, dtype, shape, bytes)] of one parameter."""
    w = p.detach().float().cpu()
    if kind == "f32":
        out = [(name, "F32", w.shape, _raw(w))]
        if name.endswith("gate.bias"):                       # image tokens never occur here: same routing for them
            out.append((name + "_vl", "F32", w.shape, _raw(w)))
        return out
    if kind == "bf16":
        return [(name, "BF16", w.shape, _raw(w.to(torch.bfloat16).view(torch.int16)))]
    scale = name[:-len("weight")] + "scale"
    if kind in ("fp8", "rows"):
        q, s = quant.encode_fp8_block(w) if kind == "fp8" else quant.encode_fp8_rows(w)
        return [(name, "F8_E4M3", q.shape, _raw(q)), (scale, "F8_E8M0", s.shape, _raw(s))]
    out, (base, mat) = [], name.rsplit(".", 1)
    for e in range(w.shape[0]):
        q, s = quant.encode_mxfp4(w[e])
        out += [(f"{base}.{e}.{mat}.weight", "I8", q.shape, _raw(q)), (f"{base}.{e}.{mat}.scale", "F8_E8M0", s.shape, _raw(s))]
    return out


def write_safetensors(path, tensors):
    head, pos = {}, 0
    for name, dt, shape, raw in tensors:
        head[name] = {"dtype": dt, "shape": list(shape), "data_offsets": [pos, pos + len(raw)]}
        pos += len(raw)
    h = json.dumps(head, separators=(",", ":")).encode()
    h += b" " * (-len(h) % 8)
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(h)) + h)
        for t in tensors:
            f.write(t[3])


def save(folder, config, model, draft):
    """Shards in the order of the release: backbone, then mtp.*, then the Engram tables."""
    os.makedirs(folder, exist_ok=True)
    groups = [[], [], []]
    for name, (kind, p) in kinds(model, draft).items():
        g = 2 if ".engram.embed." in name else 1 if name.startswith("mtp.") else 0
        groups[g] += encode(name, kind, p)
    shards = []
    for g in groups:
        shards.append([])
        for t in g:
            if shards[-1] and sum(len(x[3]) for x in shards[-1]) + len(t[3]) > SHARD_BYTES:
                shards.append([])
            shards[-1].append(t)
    index, total = {}, 0
    for i, tensors in enumerate(shards):
        file = f"model-{i + 1:05d}-of-{len(shards):05d}.safetensors"
        write_safetensors(os.path.join(folder, file), tensors)
        for t in tensors:
            index[t[0]] = file
            total += len(t[3])
    with open(os.path.join(folder, "model.safetensors.index.json"), "w") as f:
        json.dump({"metadata": {"total_size": total}, "weight_map": dict(sorted(index.items()))}, f, indent=0)
    with open(os.path.join(folder, "config.json"), "w") as f:
        json.dump(config, f, indent=1)


DTYPES = {"F32": torch.float32, "BF16": torch.bfloat16, "I32": torch.int32, "I8": torch.uint8, "U8": torch.uint8,
          "F8_E4M3": torch.uint8, "F8_E8M0": torch.uint8, "I64": torch.int64}


def read_safetensors(path):
    with open(path, "rb") as f:
        head = json.loads(f.read(struct.unpack("<Q", f.read(8))[0]))
        data = bytearray(f.read())
    out = {}
    for name, h in head.items():
        if name != "__metadata__":
            a, b = h["data_offsets"]
            n = (b - a) // torch.empty((), dtype=DTYPES[h["dtype"]]).element_size()
            out[name] = torch.frombuffer(data, dtype=DTYPES[h["dtype"]], count=n, offset=a).reshape(h["shape"]).clone()
    return out


@torch.no_grad()
def load(folder, model, draft):
    """Dequantise a checkpoint into the modules. Exact, and rounding the result again changes nothing."""
    raw = {}
    for file in sorted(os.listdir(folder)):
        if file.startswith("model-") and file.endswith(".safetensors"):
            raw.update(read_safetensors(os.path.join(folder, file)))
    used = set()

    def get(name):
        used.add(name)
        return raw[name]

    for name, (kind, p) in kinds(model, draft).items():
        scale = name[:-len("weight")] + "scale"
        if kind in ("f32", "bf16"):
            w = get(name).float()
        elif kind == "fp8":
            w = quant.decode_fp8(get(name), get(scale))
        elif kind == "rows":
            w = quant.decode_fp8(get(name), get(scale), rows=1)
        else:
            base, mat = name.rsplit(".", 1)
            w = torch.stack([quant.decode_mxfp4(get(f"{base}.{e}.{mat}.weight"), get(f"{base}.{e}.{mat}.scale"))
                             for e in range(p.shape[0])])
        assert w.shape == p.shape, (name, w.shape, p.shape)
        p.copy_(w)
    left = [n for n in raw if n not in used and not n.endswith("bias_vl")]
    assert not left, left
