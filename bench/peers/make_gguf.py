#!/usr/bin/env python3
"""Writes a GGUF of the sizes of a Hadal configuration, random weights, for measuring llama.cpp beside Hadal.

usage: make_gguf.py [--architecture deepseek4|deepseek2] configs/v41-mini.json OUT.gguf
       (needs numpy and gguf from PyPI)

Experts are MXFP4, dense weights Q8_0, router and hyper-connections F32, as converted checkpoints of the family have
them.

deepseek4  hyper-connections, sliding window, compressed and selected rows, grouped output projection. llama.cpp knows
           the compression ratios of V4 (4 and 128) and neither shared sources of compressed rows nor Engram, so layers
           that compress take 4 and 128 in turn.
deepseek2  the simplest graph that llama.cpp has for latent attention with routed experts: one residual stream and every
           key attended to; for how much of the difference the parts of V4 are to blame.
"""
import argparse
import json
import math
import pathlib

import gguf
import numpy as np

F32, Q8_0, MXFP4 = gguf.GGMLQuantizationType.F32, gguf.GGMLQuantizationType.Q8_0, gguf.GGMLQuantizationType.MXFP4


class Writer:
    def __init__(self, path, architecture, seed=1):
        self.file = gguf.GGUFWriter(path, architecture)
        self.architecture = architecture
        self.random = np.random.default_rng(seed)

    def key(self, name, value):
        name = f"{self.architecture}.{name}"
        if isinstance(value, list):
            self.file.add_array(name, value)
        elif isinstance(value, bool):
            self.file.add_bool(name, value)
        elif isinstance(value, float):
            self.file.add_float32(name, value)
        else:
            self.file.add_uint32(name, value)

    def f32(self, name, shape, deviation=0.0, mean=0.0):
        values = self.random.standard_normal(shape, dtype=np.float32) * deviation + mean
        self.file.add_tensor(name, values.astype(np.float32), raw_dtype=F32)

    def q8_0(self, name, shape):
        """shape: outputs last but one, inputs last. Blocks of 32: an fp16 scale, 32 signed bytes; deviation
        1 / sqrt(inputs)."""
        inputs = shape[-1]
        blocks = np.empty((*shape[:-1], inputs // 32, 34), np.uint8)
        scale = np.float16(1 / math.sqrt(inputs) / 73)  # a uniform signed byte deviates by 73
        blocks[..., :2] = np.frombuffer(scale.tobytes(), np.uint8)
        codes = blocks[..., 2:]
        codes[:] = np.frombuffer(self.random.bytes(codes.size), np.uint8).reshape(codes.shape)
        self.file.add_tensor(name, blocks.reshape(*shape[:-1], -1), raw_dtype=Q8_0)

    def mxfp4(self, name, shape):
        """Blocks of 32: an e8m0 scale, 32 e2m1 codes; the codes deviate by 2.9."""
        inputs = shape[-1]
        blocks = np.frombuffer(bytearray(self.random.bytes(math.prod(shape) // 32 * 17)), np.uint8)
        blocks = blocks.reshape(*shape[:-1], inputs // 32, 17)
        blocks[..., 0] = 127 + round(math.log2(1 / math.sqrt(inputs) / 2.9)) + (blocks[..., 0] & 1)
        self.file.add_tensor(name, blocks.reshape(*shape[:-1], -1), raw_dtype=MXFP4)

    def close(self):
        self.file.write_header_to_file()
        self.file.write_kv_data_to_file()
        self.file.write_tensors_to_file()
        self.file.close()


def common(w, c):
    w.file.add_string("tokenizer.ggml.model", "no_vocab")
    for name, value in {
        "vocab_size": c["vocab_size"],
        "context_length": 65536,
        "embedding_length": c["hidden_size"],
        "block_count": c["num_hidden_layers"],
        "feed_forward_length": c["moe_intermediate_size"],
        "expert_feed_forward_length": c["moe_intermediate_size"],
        "expert_count": c["n_routed_experts"],
        "expert_used_count": c["num_experts_per_tok"],
        "expert_shared_count": c["n_shared_experts"],
        "expert_weights_scale": float(c["routed_scaling_factor"]),
        "expert_weights_norm": True,
        "attention.head_count": c["num_attention_heads"],
        "attention.head_count_kv": 1,
        "attention.q_lora_rank": c["q_lora_rank"],
        "attention.layer_norm_rms_epsilon": 1e-6,
        "rope.dimension_count": c["qk_rope_head_dim"],
        "rope.freq_base": float(c["rope_theta"]),
    }.items():
        w.key(name, value)
    vocabulary, d = c["vocab_size"], c["hidden_size"]
    w.q8_0("token_embd.weight", (vocabulary, d))
    w.f32("output_norm.weight", (d,), mean=1)
    w.q8_0("output.weight", (vocabulary, d))


def experts(w, c, layer):
    d, width, count = c["hidden_size"], c["moe_intermediate_size"], c["n_routed_experts"]
    b = f"blk.{layer}."
    w.f32(b + "ffn_norm.weight", (d,), mean=1)
    w.f32(b + "ffn_gate_inp.weight", (count, d), deviation=1 / math.sqrt(d))
    w.f32(b + "exp_probs_b.bias", (count,))
    w.mxfp4(b + "ffn_gate_exps.weight", (count, width, d))
    w.mxfp4(b + "ffn_up_exps.weight", (count, width, d))
    w.mxfp4(b + "ffn_down_exps.weight", (count, d, width))
    shared = width * c["n_shared_experts"]
    w.q8_0(b + "ffn_gate_shexp.weight", (shared, d))
    w.q8_0(b + "ffn_up_shexp.weight", (shared, d))
    w.q8_0(b + "ffn_down_shexp.weight", (d, shared))


def deepseek4(w, c):
    common(w, c)
    d, heads, head, layers = c["hidden_size"], c["num_attention_heads"], c["head_dim"], c["num_hidden_layers"]
    ratios = [0 if not ratio else 4 if layer % 2 else 128 for layer, ratio in enumerate(c["compress_ratios"][:layers])]
    for name, value in {
        "attention.key_length": head,
        "attention.value_length": head,
        "attention.sliding_window": c["sliding_window"],
        "attention.indexer.head_count": c["index_n_heads"],
        "attention.indexer.key_length": c["index_head_dim"],
        "attention.indexer.top_k": c["index_topk"],
        "attention.output_group_count": c["o_groups"],
        "attention.output_lora_rank": c["o_lora_rank"],
        "attention.compress_rope_freq_base": float(c["compress_rope_theta"]),
        "attention.compress_ratios": ratios,
        "hyper_connection.count": c["hc_mult"],
        "hyper_connection.sinkhorn_iterations": c["hc_sinkhorn_iters"],
        "hyper_connection.epsilon": float(c["hc_eps"]),
        "hash_layer_count": 0,
        "expert_gating_func": 4,  # the square root of softplus
        "swiglu_clamp_exp": [float(c["swiglu_limit"])] * layers,
        "swiglu_clamp_shexp": [float(c["swiglu_limit"])] * layers,
    }.items():
        w.key(name, value)
    copies = c["hc_mult"]
    mixes = (2 + copies) * copies
    w.f32("output_hc_fn.weight", (copies, copies * d), deviation=0.01)
    w.f32("output_hc_base.weight", (copies,))
    w.f32("output_hc_scale.weight", (1,), mean=1)
    for layer, ratio in enumerate(ratios):
        b = f"blk.{layer}."
        w.f32(b + "attn_norm.weight", (d,), mean=1)
        w.f32(b + "attn_sinks.weight", (heads,))
        w.q8_0(b + "attn_q_a.weight", (c["q_lora_rank"], d))
        w.f32(b + "attn_q_a_norm.weight", (c["q_lora_rank"],), mean=1)
        w.q8_0(b + "attn_q_b.weight", (heads * head, c["q_lora_rank"]))
        w.q8_0(b + "attn_kv.weight", (head, d))
        w.f32(b + "attn_kv_a_norm.weight", (head,), mean=1)
        w.q8_0(b + "attn_output_a.weight", (c["o_groups"] * c["o_lora_rank"], heads * head // c["o_groups"]))
        w.q8_0(b + "attn_output_b.weight", (d, c["o_groups"] * c["o_lora_rank"]))
        for part in ("attn", "ffn"):
            w.f32(f"{b}hc_{part}_fn.weight", (mixes, copies * d), deviation=0.01)
            w.f32(f"{b}hc_{part}_base.weight", (mixes,))
            w.f32(f"{b}hc_{part}_scale.weight", (3,), mean=1)
        sources = [("attn_compressor", head)] if ratio else []
        if ratio == 4:
            index = c["index_head_dim"]
            sources.append(("indexer_compressor", index))
            w.q8_0(b + "indexer.proj.weight", (c["index_n_heads"], d))
            w.q8_0(b + "indexer.attn_q_b.weight", (c["index_n_heads"] * index, c["q_lora_rank"]))
        for name, width in sources:
            columns = width * (2 if ratio == 4 else 1)
            w.q8_0(f"{b}{name}_kv.weight", (columns, d))
            w.q8_0(f"{b}{name}_gate.weight", (columns, d))
            w.f32(f"{b}{name}_ape.weight", (ratio, columns), deviation=0.02)
            w.f32(f"{b}{name}_norm.weight", (width,), mean=1)
        experts(w, c, layer)


def deepseek2(w, c):
    common(w, c)
    d, heads, latent, rope = c["hidden_size"], c["num_attention_heads"], 512, c["qk_rope_head_dim"]
    # The query projection then has the size of V4's, the output projection that of both of its parts.
    key, value = c["head_dim"], c["head_dim"] // 2
    for name, number in {
        "attention.key_length": latent + rope,
        "attention.value_length": latent,
        "attention.key_length_mla": key,
        "attention.value_length_mla": value,
        "attention.kv_lora_rank": latent,
        "leading_dense_block_count": 0,
        "expert_gating_func": 2,  # sigmoid
    }.items():
        w.key(name, number)
    for layer in range(c["num_hidden_layers"]):
        b = f"blk.{layer}."
        w.f32(b + "attn_norm.weight", (d,), mean=1)
        w.q8_0(b + "attn_q_a.weight", (c["q_lora_rank"], d))
        w.f32(b + "attn_q_a_norm.weight", (c["q_lora_rank"],), mean=1)
        w.q8_0(b + "attn_q_b.weight", (heads * key, c["q_lora_rank"]))
        w.q8_0(b + "attn_kv_a_mqa.weight", (latent + rope, d))
        w.f32(b + "attn_kv_a_norm.weight", (latent,), mean=1)
        w.q8_0(b + "attn_k_b.weight", (heads, latent, key - rope))
        w.q8_0(b + "attn_v_b.weight", (heads, value, latent))
        w.q8_0(b + "attn_output.weight", (d, heads * value))
        experts(w, c, layer)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--architecture", choices=("deepseek4", "deepseek2"), default="deepseek4")
    parser.add_argument("config", type=pathlib.Path)
    parser.add_argument("out", type=pathlib.Path)
    arguments = parser.parse_args()
    config = json.loads(arguments.config.read_text())
    writer = Writer(arguments.out, arguments.architecture)
    {"deepseek4": deepseek4, "deepseek2": deepseek2}[arguments.architecture](writer, config.get("text_config", config))
    writer.close()


if __name__ == "__main__":
    main()
