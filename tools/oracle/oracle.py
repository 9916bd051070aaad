#!/usr/bin/env python3
"""Logits of a DeepSeek-V4.1 checkpoint from a published package: NVIDIA NeMo Automodel, eager PyTorch on a CPU.

    oracle.py CHECKPOINT --ids 5,17,3 | --ids-file F.npy  --out logits.npy [--dtype float32|bfloat16]

Nothing of this engine is used: the package reads config.json, dequantises the tensors with its own adapter and runs
its own model. Cache rounding (FP8 window, FP4 latents, FP4 index keys and queries) is part of that model; the inputs of
FP8 and FP4 linears are not rounded, so it is an oracle for the modes `fp32` (--dtype float32) and `bf16` (bfloat16).

One thing has to be given: the Engram map from token id to compressed id. The package derives it from the tokenizer;
where the checkpoint has engram_token_map.npy, that file is used, since small random checkpoints have no tokenizer.
"""
import argparse
import json
import pathlib
import struct
import sys

import numpy as np
import torch

TORCH_TYPES = {"BF16": torch.bfloat16, "F32": torch.float32, "I8": torch.int8, "F8_E4M3": torch.float8_e4m3fn,
               "F8_E8M0": torch.float8_e8m0fnu}


def read_tensors(directory: pathlib.Path) -> dict[str, torch.Tensor]:
    """All backbone tensors by their released names. `mtp.*` (drafts) and vision are not part of the logits."""
    index = json.loads((directory / "model.safetensors.index.json").read_text())["weight_map"]
    tensors: dict[str, torch.Tensor] = {}
    for shard in sorted(set(index.values())):
        with open(directory / shard, "rb") as f:
            (length,) = struct.unpack("<Q", f.read(8))
            header = json.loads(f.read(length))
            base = 8 + length
            for name, entry in header.items():
                if name == "__metadata__" or name.startswith(("mtp.", "vision.", "aligner.", "image_")):
                    continue
                begin, end = entry["data_offsets"]
                f.seek(base + begin)
                raw = torch.frombuffer(bytearray(f.read(end - begin)), dtype=torch.uint8)
                tensors[name] = raw.view(TORCH_TYPES[entry["dtype"]]).reshape(entry["shape"])
    return tensors


class GivenTokenMap:
    """Stands in for the tokenizer when the map of compressed ids is given."""

    def __init__(self, path: pathlib.Path):
        self.ids = np.load(path).astype(np.int64)

    def result(self) -> tuple[tuple[int, ...], int]:
        return tuple(int(i) for i in self.ids), int(self.ids.max()) + 1


def load(directory: pathlib.Path, dtype: str):
    from nemo_automodel.components.models.common import BackendConfig
    from nemo_automodel.components.models.deepseek_v41 import engram
    from nemo_automodel.components.models.deepseek_v41.config import DeepseekV41Config
    from nemo_automodel.components.models.deepseek_v41.model import DeepseekV41ForCausalLM

    config = json.loads((directory / "config.json").read_text())
    text = dict(config["text_config"], dtype=dtype)
    # The size of the table is the sum of the primes whatever the file says of absent layers; no layers, no table.
    if not text.get("engram_layer_ids"):
        text.update(engram_layer_ids=[], engram_num_embeddings=[])
    vision = {"num_hidden_layers": 0}  # text only: the tower is not built
    model_config = DeepseekV41Config(
        text_config=text, vision_config=vision, dtype=dtype,
        **{k: v for k, v in config.items()
           if k in ("image_token_id", "pad_token_id", "bos_token_id", "eos_token_id", "tie_word_embeddings")})

    tokenizer = None
    token_map = directory / "engram_token_map.npy"
    if text["engram_layer_ids"]:
        if token_map.exists():
            tokenizer = GivenTokenMap(token_map)
            engram._compressed_token_map = GivenTokenMap.result
        else:
            from transformers import PreTrainedTokenizerFast
            tokenizer = PreTrainedTokenizerFast(tokenizer_file=str(directory / "tokenizer.json"))

    backend = BackendConfig(attn="eager", linear="torch", rms_norm="torch_fp32", rope_fusion=False, experts="torch",
                            dispatcher="torch", enable_hf_state_dict_adapter=False, enable_fsdp_optimizations=False)
    model = DeepseekV41ForCausalLM(model_config, backend=backend, tokenizer=tokenizer)

    from nemo_automodel.components.models.deepseek_v41.state_dict_adapter import DeepseekV41StateDictAdapter
    torch_dtype = getattr(torch, dtype)
    adapter = DeepseekV41StateDictAdapter(model_config, model.moe_config, backend, dtype=torch_dtype)
    state = adapter.from_hf(read_tensors(directory))
    missing, unexpected = model.load_state_dict(state, strict=False)
    if missing or unexpected:
        sys.exit(f"the package's model and {directory} do not fit: missing {missing}, unexpected {unexpected}")
    return model.eval()


@torch.no_grad()
def logits(model, ids: np.ndarray) -> np.ndarray:
    out = model(torch.as_tensor(np.asarray(ids, np.int64))[None])
    return out.logits[0].float().numpy()


def parse_ids(args) -> np.ndarray:
    if args.ids_file:
        return np.load(args.ids_file).astype(np.int64).reshape(-1)
    return np.array([int(i) for i in args.ids.replace(",", " ").split()], np.int64)


def main() -> None:
    ap = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    ap.add_argument("checkpoint", type=pathlib.Path)
    group = ap.add_mutually_exclusive_group(required=True)
    group.add_argument("--ids", help="token ids, separated by commas or spaces")
    group.add_argument("--ids-file", type=pathlib.Path, help=".npy of integers")
    ap.add_argument("--out", type=pathlib.Path, required=True, help=".npy, float32 [ids, vocabulary]")
    ap.add_argument("--dtype", choices=("float32", "bfloat16"), default="float32")
    ap.add_argument("--threads", type=int, default=2)
    args = ap.parse_args()
    torch.set_num_threads(args.threads)
    values = logits(load(args.checkpoint, args.dtype), parse_ids(args))
    np.save(args.out, values)
    print(f"{args.out}: {values.shape[0]} positions, {values.shape[1]} logits, largest {np.abs(values).max():.6g}")


if __name__ == "__main__":
    main()
