"""Configuration: reading config.json, the sizes of hadal-tiny, and the Engram constants that follow from them."""
import json
from types import SimpleNamespace

import numpy as np

# 8192 ids at width 192 keep embedding and head at 6.3 MB; with F32 hyper-connection matrices (1.9 MB) and FP4 experts
# everything stays under 20 MB. Window 64, top-k 64 and 16 candidate blocks of 8 are small enough that selection and
# candidate filter work on ordinary prompts (from 64, 128 and 128 tokens on), not only on long ones.
TINY = dict(
    model_type="deepseek_v41_text", vocab_size=8192, hidden_size=192, num_hidden_layers=10, num_attention_heads=8,
    num_key_value_heads=1, head_dim=64, qk_rope_head_dim=32, q_lora_rank=96, o_groups=4, o_lora_rank=64,
    sliding_window=64, moe_intermediate_size=96, n_routed_experts=12, n_shared_experts=1, num_experts_per_tok=3,
    scoring_func="sqrtsoftplus", topk_method="noaux_tc", norm_topk_prob=True, routed_scaling_factor=1.5,
    swiglu_limit=10.0, hidden_act="silu", rms_norm_eps=1e-20, attention_bias=False, attention_dropout=0.0,
    initializer_range=0.02, use_cache=True, tie_word_embeddings=False, max_position_embeddings=8192,
    rope_theta=10000, compress_rope_theta=160000,
    rope_scaling=dict(rope_type="yarn", factor=16, beta_fast=32, beta_slow=1, original_max_position_embeddings=65536),
    compress_ratios=[0, 0, 2, 2, 2, 2, 1, 1, 1, 1, 0, 0, 0], kv_source_layer_ids=[2, 4, 6],
    index_source_layer_ids=[2, 4, 6, 8], index_n_heads=4, index_head_dim=32, index_topk=64,
    candidate_source_layer_id=6, candidate_topk_blocks=16, candidate_block_size=8,
    hc_mult=4, hc_sinkhorn_iters=20, hc_eps=1e-6,
    engram_layer_ids=[1, 4], engram_max_ngram_size=4, engram_n_heads=2, engram_head_dim=32, engram_vocab_size=2400,
    engram_pad_token_id=2, num_nextn_predict_layers=3, dspark_block_size=5, dspark_target_layer_ids=[7, 8, 9],
    dspark_markov_rank=32, dspark_n_routed_experts=8, dspark_num_experts_per_tok=2)


def is_prime(n):
    return n > 1 and all(n % d for d in range(2, int(n ** 0.5) + 1))


def engram_primes(t):
    """[layer][column]: successive unused primes from engram_vocab_size; columns n-gram size major, head minor."""
    p, out = t.engram_vocab_size - 1, []
    for _ in t.engram_layer_ids:
        row = []
        for _ in range((t.engram_max_ngram_size - 1) * t.engram_n_heads):
            p += 1
            while not is_prime(p):
                p += 1
            row.append(p)
        out.append(row)
    return out


def engram_multipliers(t, layer):
    hi = (2 ** 63 - 1) // t.engram_compressed_vocab_size // 2
    return [int(x) * 2 + 1 for x in np.random.default_rng(10007 * layer).integers(0, hi, t.engram_max_ngram_size)]


def tiny_config(vocab_size, compressed_vocab, noise_id, image_id):
    """The nested config.json of hadal-tiny."""
    t = dict(TINY, vocab_size=vocab_size, engram_compressed_vocab_size=compressed_vocab, dspark_noise_token_id=noise_id)
    t["engram_num_embeddings"] = [sum(p) for p in engram_primes(SimpleNamespace(**t))]
    return {
        "architectures": ["DeepseekV41ForCausalLM"], "model_type": "deepseek_v41", "dtype": "bfloat16",
        "bos_token_id": 0, "eos_token_id": 1, "pad_token_id": 2, "image_token_id": image_id,
        "tie_word_embeddings": False,
        "quantization_config": {"quant_method": "fp8", "activation_scheme": "dynamic", "weight_block_size": [32, 32],
                                "scale_fmt": "ue8m0", "expert_dtype": "fp4"},
        "text_config": t}


def load_config(folder):
    with open(f"{folder}/config.json") as f:
        return SimpleNamespace(**json.load(f)["text_config"])
