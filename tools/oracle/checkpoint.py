"""The published checkpoint layout for numpy: every tensor as float64, dequantised exactly (specification 2.3)."""
import json
import pathlib

import numpy as np

E2M1 = np.array([0, .5, 1, 1.5, 2, 3, 4, 6.])


def e4m3_values() -> np.ndarray:
    codes = np.arange(256)
    exponent, mantissa = (codes >> 3) & 15, codes & 7
    value = np.where(exponent == 0, mantissa / 8 * 2.0 ** -6, (1 + mantissa / 8) * 2.0 ** (exponent - 7.0))
    value[(codes & 127) == 127] = np.nan
    return np.where(codes & 128, -value, value)


E4M3 = e4m3_values()
TYPES = {"BF16": np.uint16, "F32": np.float32, "I8": np.uint8, "F8_E4M3": np.uint8, "F8_E8M0": np.uint8, "I32": np.int32,
         "U8": np.uint8}


def read_safetensors(path) -> dict[str, tuple[str, np.ndarray]]:
    raw = np.memmap(path, np.uint8, "r")
    length = int(raw[:8].view(np.uint64)[0])
    header = json.loads(raw[8:8 + length].tobytes())
    result = {}
    for name, entry in header.items():
        if name == "__metadata__":
            continue
        begin, end = entry["data_offsets"]
        part = raw[8 + length + begin:8 + length + end]
        result[name] = entry["dtype"], np.frombuffer(part.tobytes(), TYPES[entry["dtype"]]).reshape(entry["shape"])
    return result


def write_safetensors(path, tensors: dict[str, np.ndarray]) -> None:
    names = {np.dtype(np.float32): "F32", np.dtype(np.int32): "I32", np.dtype(np.uint16): "BF16", np.dtype(np.uint8): "U8"}
    header, body, at = {}, [], 0
    for name, values in tensors.items():
        data = np.ascontiguousarray(values).tobytes()
        header[name] = {"dtype": names[values.dtype], "shape": list(values.shape), "data_offsets": [at, at + len(data)]}
        body.append(data)
        at += len(data)
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    pathlib.Path(path).write_bytes(len(text).to_bytes(8, "little") + text + b"".join(body))


def floats(kind: str, values: np.ndarray) -> np.ndarray:
    if kind == "BF16":
        return (values.astype(np.uint32) << 16).view(np.float32).astype(np.float64)
    if kind == "F32":
        return values.astype(np.float64)
    raise ValueError(f"{kind} needs a scale")


class Checkpoint:
    def __init__(self, directory):
        self.directory = pathlib.Path(directory)
        self.config = json.loads((self.directory / "config.json").read_text())
        self.text = self.config["text_config"]
        index = json.loads((self.directory / "model.safetensors.index.json").read_text())["weight_map"]
        self.raw: dict[str, tuple[str, np.ndarray]] = {}
        for shard in sorted(set(index.values())):
            self.raw.update(read_safetensors(self.directory / shard))
        self.cache: dict[str, np.ndarray] = {}

    def quantised(self, name: str) -> bool:
        """Whether `name` (without .weight) is an FP8 or FP4 linear."""
        return name + ".scale" in self.raw

    def __getitem__(self, name: str) -> np.ndarray:
        """`name` with its suffix, or a linear without it; float64."""
        if name not in self.cache:
            self.cache[name] = self.read(name)
        return self.cache[name]

    def read(self, name: str) -> np.ndarray:
        if name in self.raw:
            return floats(*self.raw[name])
        kind, codes = self.raw[name + ".weight"]
        if not self.quantised(name):
            return floats(kind, codes)
        scale = 2.0 ** (self.raw[name + ".scale"][1].astype(np.float64) - 127)
        if kind == "I8":
            values = np.empty((codes.shape[0], 2 * codes.shape[1]))
            for half, nibble in enumerate((codes & 15, codes >> 4)):
                values[:, half::2] = np.where(nibble & 8, -1.0, 1.0) * E2M1[nibble & 7]
            return values * scale.repeat(32, 1)[:, :values.shape[1]]
        rows, columns = codes.shape
        if ".engram.embed" not in name:
            scale = scale.repeat(32, 0)[:rows]
        return E4M3[codes] * scale.repeat(32, 1)[:, :columns]
