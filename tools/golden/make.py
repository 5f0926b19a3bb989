#!/usr/bin/env python3
"""Makes tiny model folders with random weights and the logits of naive.py: tools/golden/make.py OUT [FAMILY...]

A folder holds config.json, model.safetensors (bf16, Hugging Face's names) and golden.safetensors: prompt_ids,
prompt_logits, greedy_ids, and step_logits, whose row 0 is that of the last prompt token.  Seeds are tried until the
best logit of every step leads by 0.02, so that greedy ids do not hang on a rounding.  Families with a draft head have
its first rounds beside that, in draft.json and draft.safetensors.
"""
import json
import os
import random
import struct
import sys

import naive

VOCAB, PROMPT, STEPS = 64, 44, 12
BASE = {'vocab_size': VOCAB, 'hidden_size': 32, 'num_hidden_layers': 2, 'num_attention_heads': 4,
        'num_key_value_heads': 2, 'intermediate_size': 48, 'rms_norm_eps': 1e-5, 'rope_theta': 10000.0,
        'hidden_act': 'silu', 'max_position_embeddings': 1024, 'tie_word_embeddings': False, 'torch_dtype': 'bfloat16'}


def attention_tensors(t, at, c, d, bias=False, fused=False, whole=False):
    h, n, m = c['hidden_size'], c['num_attention_heads'], c['num_key_value_heads']
    if fused:
        t[at + 'qkv_proj.weight'] = [(n + 2 * m) * d, h]
    else:
        for s, k in (('q', n), ('k', m), ('v', m)):
            t[f'{at}{s}_proj.weight'] = [k * d, h]
            if bias:
                t[f'{at}{s}_proj.bias'] = [k * d]
    if whole:
        t[at + 'q_norm.weight'], t[at + 'k_norm.weight'] = [n * d], [m * d]
    t[at + 'o_proj.weight'] = [h, n * d]


def mlp_tensors(t, at, h, inner, fused=False):
    if fused:
        t[at + 'gate_up_proj.weight'] = [2 * inner, h]
    else:
        t[at + 'gate_proj.weight'], t[at + 'up_proj.weight'] = [inner, h], [inner, h]
    t[at + 'down_proj.weight'] = [h, inner]


def decoder(c, norms, d=8, embed='embed_tokens', ffn=None, **attention):
    """Shapes by name of a model whose layers are attention and MLP."""
    h, t = c['hidden_size'], {}
    t[f'model.{embed}.weight'] = [VOCAB, h]
    t['model.norm.weight'] = [h]
    if not c['tie_word_embeddings']:
        t['lm_head.weight'] = [VOCAB, h]
    for i in range(c['num_hidden_layers']):
        at = f'model.layers.{i}.'
        for n in norms:
            t[f'{at}{n}.weight'] = [h]
        attention_tensors(t, at + 'self_attn.', c, d, **attention)
        ffn(t, at + 'mlp.', i) if ffn else mlp_tensors(t, at + 'mlp.', h, c['intermediate_size'],
                                                       attention.get('fused', False))
    return t


TWO = ['input_layernorm', 'post_attention_layernorm']
OLMO = ['post_attention_layernorm', 'post_feedforward_layernorm']


def granite():
    c = dict(BASE, model_type='granite', tie_word_embeddings=True, embedding_multiplier=2.0, attention_multiplier=0.2,
             residual_multiplier=1.6, logits_scaling=0.125, attention_bias=False, mlp_bias=False)
    return c, decoder(c, TWO), naive.granite


def smollm3():
    c = dict(BASE, model_type='smollm3', no_rope_layers=[1, 0], no_rope_layer_interval=2, use_sliding_window=False,
             attention_bias=False, mlp_bias=False)
    return c, decoder(c, TWO), naive.smollm3


def phi3():
    c = dict(BASE, model_type='phi3', partial_rotary_factor=0.75, sliding_window=13, rope_scaling=None,
             num_attention_heads=2,
             num_key_value_heads=1, original_max_position_embeddings=1024)
    return c, decoder(c, TWO, d=16, fused=True), naive.phi3


def qwen2_moe():
    c = dict(BASE, model_type='qwen2_moe', num_experts=6, num_experts_per_tok=2, moe_intermediate_size=16,
             shared_expert_intermediate_size=32, norm_topk_prob=False, decoder_sparse_step=1, mlp_only_layers=[0],
             use_sliding_window=False, sliding_window=1024, max_window_layers=2)

    def ffn(t, at, i):
        h = c['hidden_size']
        if i in c['mlp_only_layers']:
            return mlp_tensors(t, at, h, c['intermediate_size'])
        t[at + 'gate.weight'], t[at + 'shared_expert_gate.weight'] = [c['num_experts'], h], [1, h]
        mlp_tensors(t, at + 'shared_expert.', h, c['shared_expert_intermediate_size'])
        for e in range(c['num_experts']):
            mlp_tensors(t, f'{at}experts.{e}.', h, c['moe_intermediate_size'])
    return c, decoder(c, TWO, ffn=ffn, bias=True), naive.qwen2_moe


def olmo2():
    c = dict(BASE, model_type='olmo2', attention_bias=False, rope_theta=500000.0)
    return c, decoder(c, OLMO, whole=True), naive.olmo2


def glm4():
    c = dict(BASE, model_type='glm4', head_dim=16, attention_bias=True, partial_rotary_factor=0.5)
    t = decoder(c, TWO + ['post_self_attn_layernorm', 'post_mlp_layernorm'], d=16, bias=True)
    for i in range(c['num_hidden_layers']):
        for s in ('gate_proj', 'up_proj'):
            t.pop(f'model.layers.{i}.mlp.{s}.weight')
        t[f'model.layers.{i}.mlp.gate_up_proj.weight'] = [2 * c['intermediate_size'], c['hidden_size']]
    return c, t, naive.glm4


def gemma2():
    c = dict(BASE, model_type='gemma2', head_dim=16, hidden_act='gelu_pytorch_tanh', tie_word_embeddings=True,
             hidden_activation='gelu_pytorch_tanh', sliding_window=9, query_pre_attn_scalar=24,
             attn_logit_softcapping=3.0, final_logit_softcapping=4.0, attention_bias=False)
    return c, decoder(c, TWO + ['pre_feedforward_layernorm', 'post_feedforward_layernorm'], d=16), naive.gemma2


def olmo_hybrid():
    c = dict(BASE, model_type='olmo_hybrid', layer_types=['linear_attention', 'full_attention'], attention_bias=False,
             num_key_value_heads=4, linear_num_key_heads=2, linear_num_value_heads=2, linear_key_head_dim=12,
             linear_value_head_dim=24, linear_conv_kernel_dim=4, linear_allow_neg_eigval=True,
             rope_parameters={'rope_theta': None, 'rope_type': 'default'})
    c.pop('rope_theta')
    t, h = decoder(c, OLMO, whole=True), c['hidden_size']
    for name in list(t):
        if name.startswith('model.layers.0.self_attn') or name.startswith('model.layers.0.post_feed'):
            t.pop(name)
    t['model.layers.0.input_layernorm.weight'] = [h]
    at = 'model.layers.0.linear_attn.'
    for s, rows in (('q', 24), ('k', 24), ('v', 48)):
        t[f'{at}{s}_proj.weight'], t[f'{at}{s}_conv1d.weight'] = [rows, h], [rows, 1, 4]
    t[at + 'a_proj.weight'], t[at + 'b_proj.weight'], t[at + 'g_proj.weight'] = [2, h], [2, h], [48, h]
    t[at + 'A_log'], t[at + 'dt_bias'], t[at + 'o_norm.weight'], t[at + 'o_proj.weight'] = [2], [2], [24], [h, 48]
    return c, t, naive.olmo_hybrid


def bailing_v3(lora=False):
    c = dict(BASE, model_type='bailing_hybrid', architectures=['BailingMoeV3ForCausalLM'], num_attention_heads=2,
             num_key_value_heads=2, head_dim=16, layer_group_size=2, first_k_dense_replace=1, num_experts=8,
             num_experts_per_tok=3, num_shared_experts=1, moe_intermediate_size=16,
             moe_shared_expert_intermediate_size=16, n_group=4, topk_group=2, routed_scaling_factor=2.5,
             norm_topk_prob=True, moe_router_enable_expert_bias=True, score_function='sigmoid', q_lora_rank=24,
             kv_lora_rank=32, qk_nope_head_dim=16, qk_rope_head_dim=8, qk_head_dim=24, v_head_dim=16,
             rope_interleave=True, short_conv_kernel_size=4, kda_safe_gate=True, kda_lower_bound=-5.0,
             no_kda_lora=not lora, gated_attention_proj_granularity_type='element_wise' if lora else 'head_wise',
             use_bias=False, use_qkv_bias=False, rope_scaling=None, rope_theta=6000000.0, linear_silu=True,
             partial_rotary_factor=0.5)
    h, n, d, t = c['hidden_size'], 2, 16, {}
    t['model.word_embeddings.weight'], t['lm_head.weight'], t['model.norm.weight'] = [VOCAB, h], [VOCAB, h], [h]
    for i in range(2):
        for s in TWO:
            t[f'model.layers.{i}.{s}.weight'] = [h]
    at = 'model.layers.0.attention.'
    for s in 'qkv':
        t[f'{at}{s}_proj.weight'], t[f'{at}{s}_conv1d.weight'] = [n * d, h], [n * d, 1, 4]
    for s in 'fg':
        if lora:
            t[f'{at}{s}_a_proj.weight'], t[f'{at}{s}_b_proj.weight'] = [d, h], [n * d, d]
        else:
            t[f'{at}{s}_proj.weight'] = [n * d, h]
    t[at + 'b_proj.weight'], t[at + 'A_log'], t[at + 'dt_bias'] = [n, h], [n], [n * d]
    t[at + 'o_norm.weight'], t[at + 'o_proj.weight'] = [d], [h, n * d]
    mlp_tensors(t, 'model.layers.0.mlp.', h, c['intermediate_size'])
    at = 'model.layers.1.attention.'
    t[at + 'q_a_proj.weight'], t[at + 'q_a_layernorm.weight'], t[at + 'q_b_proj.weight'] = [24, h], [24], [n * 24, 24]
    t[at + 'kv_a_proj_with_mqa.weight'], t[at + 'kv_a_layernorm.weight'] = [40, h], [32]
    t[at + 'kv_b_proj.weight'], t[at + 'dense.weight'] = [n * 32, 32], [h, n * 16]
    t[at + 'g_proj.weight'] = [n * 16 if lora else n, h]
    at = 'model.layers.1.mlp.'
    t[at + 'gate.weight'], t[at + 'gate.expert_bias'] = [8, h], [8]
    mlp_tensors(t, at + 'shared_experts.', h, 16)
    for e in range(8):
        mlp_tensors(t, f'{at}experts.{e}.', h, 16)
    return c, t, naive.bailing_v3


def moe_tensors(t, at, h, c, gated=True, width=None):
    t[at + 'gate.weight'] = [c['n_routed_experts'], h]
    t[at + 'gate.e_score_correction_bias'] = [c['n_routed_experts']]
    for e in ['shared_experts.'] + [f'experts.{e}.' for e in range(c['n_routed_experts'])]:
        mlp_tensors(t, at + e, width if width and 'shared' not in e else h, c['moe_intermediate_size'])
        if not gated:
            t.pop(f'{at}{e}gate_proj.weight')


def latent_tensors(t, at, c, out):
    n, h, r = c['num_attention_heads'], c['hidden_size'], c['kv_lora_rank']
    dn, dr, dv, q = c['qk_nope_head_dim'], c['qk_rope_head_dim'], c['v_head_dim'], c['q_lora_rank']
    t[at + 'q_a_proj.weight'], t[at + 'q_a_layernorm.weight'] = [q, h], [q]
    t[at + 'q_b_proj.weight'], t[at + 'kv_a_proj_with_mqa.weight'] = [n * (dn + dr), q], [r + dr, h]
    t[at + 'kv_a_layernorm.weight'], t[at + 'kv_b_proj.weight'] = [r], [n * (dn + dv), r]
    t[f'{at}{out}.weight'] = [h, n * dv]


def draft_tensors(t, first, last, h, norm):
    t[first + 'enorm.weight'], t[first + 'hnorm.weight'], t[first + 'eh_proj.weight'] = [h], [h], [h, 2 * h]
    t[f'{last}{norm}.weight'] = [h]


LATENT = {'q_lora_rank': 24, 'kv_lora_rank': 24, 'qk_nope_head_dim': 16, 'qk_rope_head_dim': 8, 'v_head_dim': 16,
          'num_attention_heads': 2, 'num_key_value_heads': 2, 'rope_interleave': True, 'rope_scaling': None}
MIXTURE = {'first_k_dense_replace': 1, 'n_routed_experts': 8, 'num_experts_per_tok': 3, 'n_shared_experts': 1,
           'moe_intermediate_size': 16, 'n_group': 4, 'topk_group': 2, 'routed_scaling_factor': 2.5,
           'norm_topk_prob': True}


def deepseek_mtp():
    """The draft head has an embedding and an output matrix of its own."""
    c = dict(BASE, model_type='deepseek_v3', num_nextn_predict_layers=1, attention_bias=False, scoring_func='sigmoid',
             topk_method='noaux_tc', moe_layer_freq=1, **LATENT, **MIXTURE)
    h = c['hidden_size']
    t = {'model.embed_tokens.weight': [VOCAB, h], 'model.norm.weight': [h], 'lm_head.weight': [VOCAB, h]}
    for i in range(3):
        at = f'model.layers.{i}.'
        t[at + 'input_layernorm.weight'], t[at + 'post_attention_layernorm.weight'] = [h], [h]
        latent_tensors(t, at + 'self_attn.', c, 'o_proj')
        moe_tensors(t, at + 'mlp.', h, c) if i else mlp_tensors(t, at + 'mlp.', h, c['intermediate_size'])
    at = 'model.layers.2.'
    draft_tensors(t, at, at, h, 'shared_head.norm')
    t[at + 'embed_tokens.weight'], t[at + 'shared_head.head.weight'] = [VOCAB, h], [VOCAB, h]
    return c, t, naive.DEEPSEEK


def dsa_mtp():
    """An indexer in two layers and in the draft head's, and a layer that sees what the one before it has chosen."""
    c = dict(BASE, model_type='glm_moe_dsa', num_hidden_layers=3, num_nextn_predict_layers=1, attention_bias=False,
             index_n_heads=3, index_head_dim=12, index_topk=9, indexer_rope_interleave=True,
             indexer_types=['full', 'shared', 'full'], mlp_layer_types=['dense', 'sparse', 'sparse'],
             **dict(LATENT, q_lora_rank=16), **dict(MIXTURE, n_routed_experts=4, num_experts_per_tok=2,
                                                                     n_group=1, topk_group=1))
    h, q = c['hidden_size'], c['q_lora_rank']
    t = {'model.embed_tokens.weight': [VOCAB, h], 'model.norm.weight': [h], 'lm_head.weight': [VOCAB, h]}
    for i in range(4):
        at = f'model.layers.{i}.'
        t[at + 'input_layernorm.weight'], t[at + 'post_attention_layernorm.weight'] = [h], [h]
        latent_tensors(t, at + 'self_attn.', c, 'o_proj')
        moe_tensors(t, at + 'mlp.', h, c) if i else mlp_tensors(t, at + 'mlp.', h, c['intermediate_size'])
        if i != 1:
            at += 'self_attn.indexer.'
            t[at + 'wq_b.weight'], t[at + 'wk.weight'] = [3 * 12, q], [12, h]
            t[at + 'weights_proj.weight'], t[at + 'k_norm.weight'], t[at + 'k_norm.bias'] = [3, h], [12], [12]
    draft_tensors(t, 'model.layers.3.', 'model.layers.3.', h, 'shared_head.norm')
    return c, t, naive.DSA


def qwen4_site(t, at, c, inject=True):
    n, low = c['hc_count'] * c['hidden_size'], c['hc_lowrank']
    t[at + 'hc_norm.weight'], t[at + 'input_mix_weight_down.weight'] = [n], [low, n]
    t[at + 'input_mix_weight_up.weight'] = [n, low]
    if inject:
        t[at + 'block_inject_weight.weight'] = [c['hc_count'], n]


def qwen4_layer(t, at, c, full):
    h, d, n, m = c['hidden_size'], c['head_dim'], c['num_attention_heads'], c['num_key_value_heads']
    nv, index, inner, experts = c['linear_num_value_heads'], c['indexer_head_dim'], c['moe_intermediate_size'], c['num_experts']
    v, k = nv * c['linear_value_head_dim'], c['linear_num_key_heads'] * c['linear_key_head_dim']
    qwen4_site(t, at + 'attn_hyper_connection.', c), qwen4_site(t, at + 'mlp_hyper_connection.', c)
    t[at + 'mlp.gate.weight'], t[at + 'mlp.shared_expert_gate.weight'] = [experts, h], [1, h]
    t[at + 'mlp.experts.gate_up_proj'], t[at + 'mlp.experts.down_proj'] = [experts, 2 * inner, h], [experts, h, inner]
    mlp_tensors(t, at + 'mlp.shared_expert.', h, inner)
    if full:
        at += 'self_attn.'
        t[at + 'q_proj.weight'], t[at + 'k_proj.weight'], t[at + 'v_proj.weight'] = [2 * n * d, h], [m * d, h], [m * d, h]
        t[at + 'o_proj.weight'], t[at + 'q_norm.weight'], t[at + 'k_norm.weight'] = [h, n * d], [d], [d]
        t[at + 'indexer.index_qk_proj.weight'] = [(c['indexer_n_heads'] + 1) * index, h]
        t[at + 'indexer.q_layernorm.weight'], t[at + 'indexer.k_layernorm.weight'] = [index], [index]
        return
    at += 'linear_attn.'
    t[at + 'in_proj_qkv.weight'], t[at + 'in_proj_z.weight'] = [2 * k + v, h], [v, h]
    t[at + 'in_proj_a.weight'], t[at + 'in_proj_b.weight'], t[at + 'A_log'], t[at + 'dt_bias'] = [nv, h], [nv, h], [nv], [nv]
    t[at + 'conv1d.weight'], t[at + 'norm.weight'] = [2 * k + v, 1, 4], [c['linear_value_head_dim']]
    t[at + 'out_proj.weight'] = [h, v]


def qwen4_mtp():
    """Three streams, blocks of three positions, two layers of a delta net of which one has n-grams, and a draft head."""
    c = {k: v for k, v in BASE.items() if k not in ('intermediate_size', 'rope_theta')}
    c.update(model_type='qwen4_exp_text', num_hidden_layers=3, num_attention_heads=2, num_key_value_heads=1, eos_token_id=32,
             head_dim=32, partial_rotary_factor=0.25,
             layer_types=['linear_attention', 'linear_attention', 'full_attention'], rope_parameters={'rope_theta': 10000.0},
             linear_num_key_heads=2, linear_num_value_heads=4, linear_key_head_dim=16, linear_value_head_dim=16,
             linear_conv_kernel_dim=4, output_gate_type='sigmoid', num_experts=4, num_experts_per_tok=2,
             moe_intermediate_size=8, shared_expert_intermediate_size=8, hc_count=3, hc_lowrank=8, indexer_n_heads=3,
             indexer_kv_heads=1, indexer_head_dim=12, indexer_budget=9, indexer_compress_ratio=3, ple_layer_ids=[2],
             ple_embed_dim=32, ple_conv_kernel_size=4, ngram_size=3, heads_per_ngram=2, split_ngram_parts=2,
             mtp_num_hidden_layers=1)
    h, wide = c['hidden_size'], c['hc_count'] * c['hidden_size']
    t = {'model.embed_tokens.weight': [VOCAB, h], 'lm_head.weight': [VOCAB, h]}
    for i, kind in enumerate(c['layer_types']):
        qwen4_layer(t, f'model.layers.{i}.', c, kind == 'full_attention')
    qwen4_layer(t, 'mtp.layers.0.', c, True)
    for at in ('model.', 'mtp.'):
        qwen4_site(t, at + 'hyper_connection_mixer.', c, False)
    t['mtp.fc_embedding.weight'], t['mtp.fc_hidden.weight'] = [h, h], [h, h]
    t['mtp.pre_fc_norm_embedding.weight'], t['mtp.pre_fc_norm_hidden.weight'] = [h], [wide]
    at = 'model.layers.1.ple.'
    t[at + 'key_proj.weight'], t[at + 'value_proj.weight'], t[at + 'conv1d.weight'] = [wide, 32], [h, 32], [wide, 1, 4]
    for n in ('key', 'query', 'conv'):
        t[f'{at}norm_{n}.weight'] = [wide]
    t[at + 'ple_embedding.ngram_embedding.shard_0.weight'] = [64, 8]
    t[at + 'ple_embedding.ngram_embedding.shard_1.weight'] = [64, 8]
    t[at + 'ple_embedding.layer_multipliers'] = ('I64', [23703573157769, 20109073645365, 8052911324071])
    t[at + 'ple_embedding.ngram_heads_vocab_sizes'] = ('I64', [23, 29, 31, 37])
    t[at + 'ple_embedding.ngram_heads_offsets'] = ('I64', [0, 23, 52, 83])
    return c, t, naive.QWEN4


def glm5_mtp():
    """Three streams, pools of three positions, of which nine positions are seen, and a draft head with one stream."""
    c = {k: v for k, v in BASE.items() if k not in ('rope_theta', 'head_dim')}
    c.update(model_type='glm5_next_text', num_nextn_predict_layers=1, attention_bias=False, mla_use_nope=True, rope_theta=1.0,
             layer_types=['linear_attention', 'deepseek_sparse_attention'], mlp_layer_types=['dense', 'sparse'],
             linear_attn_config={'num_heads': 2, 'head_dim': 16, 'short_conv_kernel_size': 4, 'gate_lower_bound': -5.0},
             index_n_heads=3, index_head_dim=12, index_topk=9, index_kpool=3, index_kpool_compress=True,
             index_kpool_always_select_tail=True, indexer_types=['full', 'full'], mhc=True, hc_mult=3, hc_eps=1e-6,
             hc_sinkhorn_iters=3, swiglu_limit=0.8, scoring_func='sigmoid', topk_method='noaux_tc',
             **dict(LATENT, q_lora_rank=16, kv_lora_rank=32, qk_rope_head_dim=0),
             **dict(MIXTURE, n_routed_experts=4, num_experts_per_tok=2, n_group=1, topk_group=1))
    h, q, wide = c['hidden_size'], c['q_lora_rank'], 3 * c['hidden_size']
    t = {'model.embed_tokens.weight': [VOCAB, h], 'model.norm.weight': [h], 'lm_head.weight': [VOCAB, h]}
    for i in range(3):
        at = f'model.layers.{i}.'
        t[at + 'input_layernorm.weight'], t[at + 'post_attention_layernorm.weight'] = [h], [h]
        for site in ('attn', 'ffn') if i < 2 else ():
            t[f'{at}hc_{site}_fn'], t[f'{at}hc_{site}_base'], t[f'{at}hc_{site}_scale'] = [15, wide], [15], [3]
        moe_tensors(t, at + 'mlp.', h, c) if i else mlp_tensors(t, at + 'mlp.', h, c['intermediate_size'])
        at += 'self_attn.'
        if i == 0:
            for n in 'qkv':
                t[f'{at}{n}_proj.weight'], t[f'{at}{n}_conv1d.weight'] = [32, h], [32, 1, 4]
            for n in 'fg':
                t[f'{at}{n}_a_proj.weight'], t[f'{at}{n}_b_proj.weight'] = [16, h], [32, 16]
            t[at + 'b_proj.weight'], t[at + 'A_log'], t[at + 'dt_bias'] = [2, h], [2], [32]
            t[at + 'o_norm.weight'], t[at + 'o_proj.weight'] = [16], [h, 32]
            continue
        latent_tensors(t, at, c, 'o_proj')
        at += 'indexer.'
        t[at + 'wq_b.weight'], t[at + 'wk.weight'], t[at + 'weights_proj.weight'] = [3 * 12, q], [12, h], [3, h]
        t[at + 'k_norm.weight'], t[at + 'k_norm.bias'] = [12], [12]
        t[at + 'index_kpool_compress_gate'], t[at + 'index_kpool_compress_ape'] = [12, h], [3, 12]
    draft_tensors(t, 'model.layers.2.', 'model.layers.2.', h, 'shared_head.norm')
    return c, t, naive.GLM5


def deepseek4():
    """A window, overlapping groups of four positions with an indexer, and plain ones of eight; a layer hashed by tokens; a draft
    head."""
    c = dict(BASE, model_type='deepseek_v4', num_hidden_layers=3, num_nextn_predict_layers=1, num_attention_heads=4, num_key_value_heads=1, head_dim=32,
             qk_rope_head_dim=8, q_lora_rank=16, o_groups=2, o_lora_rank=8, sliding_window=6, compress_ratios=[0, 4, 8, 0],
             compress_rope_theta=500.0, index_n_heads=3, index_head_dim=16, index_topk=3, hc_mult=3, hc_eps=1e-6,
             hc_sinkhorn_iters=3, n_routed_experts=4, num_experts_per_tok=2, n_shared_experts=1, moe_intermediate_size=16,
             num_hash_layers=1, scoring_func='sqrtsoftplus', topk_method='noaux_tc', norm_topk_prob=True,
             routed_scaling_factor=1.5, swiglu_limit=0.8, attention_bias=False)
    h, n, d, wide = c['hidden_size'], 4, 32, 3 * c['hidden_size']
    t = {'embed.weight': [VOCAB, h], 'head.weight': [VOCAB, h], 'norm.weight': [h],
         'hc_head_fn': [3, wide], 'hc_head_base': [3], 'hc_head_scale': [1]}

    def history(at, every, width):
        w = 2 * width if every == 4 else width
        t[at + 'wkv.weight'], t[at + 'wgate.weight'], t[at + 'ape'], t[at + 'norm.weight'] = [w, h], [w, h], [every, w], [width]

    for i, every in enumerate(c['compress_ratios']):
        at = f'layers.{i}.' if i < 3 else 'mtp.0.'
        t[at + 'attn_norm.weight'], t[at + 'ffn_norm.weight'] = [h], [h]
        for site in ('attn', 'ffn'):
            t[f'{at}hc_{site}_fn'], t[f'{at}hc_{site}_base'], t[f'{at}hc_{site}_scale'] = [15, wide], [15], [3]
        t[at + 'ffn.gate.weight'] = [4, h]
        if i == 0:
            t[at + 'ffn.gate.tid2eid'] = ('I64', [[k % 4, (k + 1 + k // 4 % 3) % 4] for k in range(VOCAB)])
        else:
            t[at + 'ffn.gate.bias'] = [4]
        for e in ['shared_experts.'] + [f'experts.{e}.' for e in range(4)]:
            for name, shape in (('w1', [16, h]), ('w3', [16, h]), ('w2', [h, 16])):
                t[f'{at}ffn.{e}{name}.weight'] = shape
        at += 'attn.'
        t[at + 'wq_a.weight'], t[at + 'q_norm.weight'], t[at + 'wq_b.weight'] = [16, h], [16], [n * d, 16]
        t[at + 'wkv.weight'], t[at + 'kv_norm.weight'], t[at + 'attn_sink'] = [d, h], [d], [n]
        t[at + 'wo_a.weight'], t[at + 'wo_b.weight'] = [2 * 8, n * d // 2], [h, 2 * 8]
        if every:
            history(at + 'compressor.', every, d)
        if every == 4:
            history(at + 'indexer.compressor.', every, 16)
            t[at + 'indexer.wq_b.weight'], t[at + 'indexer.weights_proj.weight'] = [3 * 16, 16], [3, h]
    for n in ('e_proj', 'h_proj'):
        t[f'mtp.0.{n}.weight'] = [h, h]
    t['mtp.0.enorm.weight'], t['mtp.0.hnorm.weight'], t['mtp.0.norm.weight'] = [h], [h], [h]
    t['mtp.0.hc_head_fn'], t['mtp.0.hc_head_base'], t['mtp.0.hc_head_scale'] = [3, wide], [3], [1]
    return c, t, naive.DEEPSEEK4


def glm4_moe_mtp():
    c = dict(BASE, model_type='glm4_moe', num_nextn_predict_layers=1, attention_bias=True, use_qk_norm=True, head_dim=32,
             num_attention_heads=2, num_key_value_heads=1, partial_rotary_factor=0.5,
             **dict(MIXTURE, n_group=1, topk_group=1))
    h = c['hidden_size']
    t = {'model.embed_tokens.weight': [VOCAB, h], 'model.norm.weight': [h], 'lm_head.weight': [VOCAB, h]}
    for i in range(3):
        at = f'model.layers.{i}.'
        t[at + 'input_layernorm.weight'], t[at + 'post_attention_layernorm.weight'] = [h], [h]
        attention_tensors(t, at + 'self_attn.', c, 32, bias=True)
        t[at + 'self_attn.q_norm.weight'], t[at + 'self_attn.k_norm.weight'] = [32], [32]
        moe_tensors(t, at + 'mlp.', h, c) if i else mlp_tensors(t, at + 'mlp.', h, c['intermediate_size'])
    draft_tensors(t, 'model.layers.2.', 'model.layers.2.', h, 'shared_head.norm')
    return c, t, naive.GLM4_MOE


def bailing_v3_mtp():
    """As Ling 3.0 flash: queries in one matrix, and limits of activations in the last layer."""
    c, t, _ = bailing_v3()
    c.update(num_nextn_predict_layers=1, kv_lora_rank=24, q_lora_rank=None, expert_swiglu_limit_list=[0, 0.6],
             share_expert_swiglu_limit_list=[0, 0.4])
    h, at = c['hidden_size'], 'model.layers.1.'
    t[at + 'attention.kv_a_proj_with_mqa.weight'], t[at + 'attention.kv_a_layernorm.weight'] = [32, h], [24]
    t[at + 'attention.kv_b_proj.weight'], t[at + 'attention.q_proj.weight'] = [64, 24], [48, h]
    for s in ('q_a_proj', 'q_a_layernorm', 'q_b_proj'):
        t.pop(f'{at}attention.{s}.weight')
    for name in [n for n in t if n.startswith(at)]:
        t[name.replace(at, 'model.layers.2.')] = t[name]
    draft_tensors(t, 'model.layers.2.', 'model.layers.2.', h, 'final_layernorm')
    return c, t, naive.BAILING


def nemotron_h_mtp():
    """Mixtures of a projection of their input; in the draft head as well."""
    c = {'model_type': 'nemotron_h', 'vocab_size': VOCAB, 'hidden_size': 32, 'num_hidden_layers': 4,
         'hybrid_override_pattern': 'ME*E', 'mtp_hybrid_override_pattern': '*E', 'num_nextn_predict_layers': 1,
         'num_attention_heads': 2, 'num_key_value_heads': 1, 'head_dim': 32, 'attention_bias': False,
         'intermediate_size': 48, 'mlp_hidden_act': 'relu2', 'mlp_bias': False, 'layer_norm_epsilon': 1e-5,
         'mamba_num_heads': 4, 'mamba_head_dim': 16, 'n_groups': 2, 'ssm_state_size': 16, 'conv_kernel': 4,
         'use_conv_bias': True, 'use_bias': False, 'mamba_proj_bias': False, 'max_position_embeddings': 1024,
         'moe_latent_size': 24, 'moe_shared_expert_intermediate_size': 16, 'tie_word_embeddings': False,
         'torch_dtype': 'bfloat16', **MIXTURE}
    h = c['hidden_size']
    t = {'backbone.embeddings.weight': [VOCAB, h], 'lm_head.weight': [VOCAB, h], 'backbone.norm_f.weight': [h]}
    layers = [(f'backbone.layers.{i}.', k) for i, k in enumerate(c['hybrid_override_pattern'])]
    for at, kind in layers + [(f'mtp.layers.{i}.', k) for i, k in enumerate(c['mtp_hybrid_override_pattern'])]:
        t[at + 'norm.weight'] = [h]
        at += 'mixer.'
        if kind == 'M':
            t[at + 'in_proj.weight'], t[at + 'conv1d.weight'], t[at + 'conv1d.bias'] = [196, h], [128, 1, 4], [128]
            t[at + 'A_log'], t[at + 'D'], t[at + 'dt_bias'] = [4], [4], [4]
            t[at + 'norm.weight'], t[at + 'out_proj.weight'] = [64], [h, 64]
        elif kind == '*':
            attention_tensors(t, at, c, 32)
        else:
            moe_tensors(t, at, h, c, gated=False, width=24)
            t[at + 'fc1_latent_proj.weight'], t[at + 'fc2_latent_proj.weight'] = [24, h], [h, 24]
    draft_tensors(t, 'mtp.layers.0.', 'mtp.layers.1.', h, 'final_layernorm')
    return c, t, naive.NEMOTRON


def mamba2():
    c = {'model_type': 'mamba2', 'vocab_size': VOCAB, 'hidden_size': 32, 'num_hidden_layers': 2, 'num_heads': 4,
         'head_dim': 16, 'n_groups': 2, 'state_size': 16, 'conv_kernel': 4, 'expand': 2, 'layer_norm_epsilon': 1e-5,
         'rms_norm': True, 'norm_before_gate': True, 'use_bias': False, 'use_conv_bias': True, 'hidden_act': 'silu',
         'tie_word_embeddings': False, 'torch_dtype': 'bfloat16'}
    t = {'backbone.embeddings.weight': [VOCAB, 32], 'lm_head.weight': [VOCAB, 32], 'backbone.norm_f.weight': [32]}
    for i in range(2):
        at = f'backbone.layers.{i}.'
        t[at + 'norm.weight'] = [32]
        at += 'mixer.'
        t[at + 'in_proj.weight'], t[at + 'conv1d.weight'], t[at + 'conv1d.bias'] = [196, 32], [128, 1, 4], [128]
        t[at + 'A_log'], t[at + 'D'], t[at + 'dt_bias'] = [4], [4], [4]
        t[at + 'norm.weight'], t[at + 'out_proj.weight'] = [64], [32, 64]
    return c, t, naive.mamba2


FAMILIES = {'granite': granite, 'smollm3': smollm3, 'phi3': phi3, 'qwen2_moe': qwen2_moe, 'olmo2': olmo2, 'glm4': glm4,
            'gemma2': gemma2, 'olmo_hybrid': olmo_hybrid, 'bailing_v3': bailing_v3,
            'bailing_v3_lora': lambda: bailing_v3(True), 'mamba2_grouped': mamba2, 'deepseek_mtp': deepseek_mtp, 'dsa_mtp': dsa_mtp,
            'qwen4_mtp': qwen4_mtp, 'glm5_mtp': glm5_mtp, 'deepseek4': deepseek4, 'glm4_moe_mtp': glm4_moe_mtp, 'bailing_v3_mtp': bailing_v3_mtp, 'nemotron_h_mtp': nemotron_h_mtp}


def fill(shape, gauss):
    return [fill(shape[1:], gauss) for _ in range(shape[0])] if len(shape) > 1 else [gauss() for _ in range(shape[0])]


def random_tensors(shapes, config, rng):
    """Products keep the size of their inputs; gains lie around 1, or around 0 where 1 is added to them."""
    out = {}
    for name, shape in shapes.items():
        if isinstance(shape, tuple):
            out[name] = shape
            continue
        mean, by = 0.0, 1.3 / shape[-1] ** 0.5
        if name.endswith(('norm.weight', 'layernorm.weight')):
            added = config['model_type'] == 'qwen4_exp_text' and 'linear_attn' not in name
            mean, by = 0.1 if added else 0.7 if config['model_type'] == 'gemma2' else 1.0, 0.2
        elif name.endswith('_scale'):
            mean, by = 0.8, 0.2
        elif len(shape) == 1:
            by = 0.3
        elif 'embed' in name:
            by = 1.0 if not config['tie_word_embeddings'] else 0.1 if config['model_type'] == 'gemma2' else 0.2
        elif name.endswith('head.weight'):
            by = 3.0 / shape[-1] ** 0.5
        elif 'conv1d' in name:
            by = 0.5
        out[name] = fill(shape, lambda: naive.bf16(rng.gauss(mean, by)))
    return out


def flat(x):
    return [v for row in x for v in flat(row)] if isinstance(x[0], list) else x


def shape_of(x):
    return [len(x)] + (shape_of(x[0]) if isinstance(x[0], list) else [])


def packed(kind, values):
    if kind == 'BF16':
        return b''.join(struct.pack('<f', v)[2:] for v in values)
    return struct.pack('<%d%s' % (len(values), {'I32': 'i', 'I64': 'q', 'F32': 'f'}[kind]), *values)


def write_safetensors(path, tensors):
    """{name: (kind, nested list) or (kind, shape, bytes)}"""
    header, data = {}, b''
    for name, t in sorted(tensors.items()):
        raw, shape = (t[2], t[1]) if len(t) == 3 else (packed(t[0], flat(t[1])), shape_of(t[1]))
        header[name] = {'dtype': t[0], 'shape': shape, 'data_offsets': [len(data), len(data) + len(raw)]}
        data += raw
    head = json.dumps(header, separators=(',', ':')).encode()
    head += b' ' * (-len(head) % 8)
    with open(path, 'wb') as f:
        f.write(struct.pack('<Q', len(head)) + head + data)


def run(forward, weights, config, rng):
    ids = [rng.randrange(VOCAB) for _ in range(PROMPT)]
    prompt = forward(weights, config, ids)
    greedy, steps, margin = [], [prompt[-1]], 9e9
    for i in range(STEPS):
        order = sorted(steps[-1], reverse=True)
        margin = min(margin, order[0] - order[1])
        if margin < 0.02:
            return None
        greedy.append(steps[-1].index(order[0]))
        if i + 1 < STEPS:
            steps.append(forward(weights, config, ids + greedy)[-1])
    return {'prompt_ids': ('I32', ids), 'greedy_ids': ('I32', greedy), 'prompt_logits': ('F32', prompt),
            'step_logits': ('F32', steps)}


def run_rounds(family, weights, config, golden):
    """A draft head's first rounds, three tokens apart, four guesses each, greedily and on from its own hidden rows:
    what is given of the model for the tokens of a round, and logits and hidden rows of the guesses."""
    prompt, greedy = golden['prompt_ids'][1], golden['greedy_ids'][1]
    ids = prompt + greedy
    given = [None] + naive.hidden_rows(family, weights, config, ids)[:-1]
    rounds, tensors, known = [], {}, 1
    for k in range(3):
        n = len(prompt) + 1 + 3 * k
        row, rest, guesses, logits, hidden = ids[1:n], given[1:n], [], [], []
        for _ in range(4):
            h, z = naive.draft_rows(family, weights, config, row, rest)
            order = sorted(z[-1], reverse=True)
            if order[0] - order[1] < 0.02:
                return None
            guesses.append(z[-1].index(order[0]))
            logits.append(z[-1]), hidden.append(h[-1])
            row, rest = row + guesses[-1:], rest + h[-1:]
        rounds.append({'bonus_position': n - 1, 'draft_ids': guesses})
        for name, t in (('hidden_fed', given[known:n]), ('draft_logits', logits), ('draft_hidden', hidden)):
            tensors[f'round{k}.{name}'] = ('F32', t)
        known = n
    return {'prompt_ids': prompt, 'target_greedy': greedy, 'rounds': rounds}, tensors


def make(out, family):
    config, shapes, forward = FAMILIES[family]()
    drafting = forward if isinstance(forward, dict) else None
    for seed in range(1, 50):
        rng = random.Random(f'{family} {seed}')
        weights = random_tensors(shapes, config, rng)
        golden = run(naive.by_layers(drafting) if drafting else forward, weights, config, rng)
        if not golden or len(set(golden['greedy_ids'][1])) <= STEPS // 2:
            continue
        drafts = run_rounds(drafting, weights, config, golden) if drafting else None
        if drafts or not drafting:
            break
    folder = os.path.join(out, family, 'hf-bf16')
    os.makedirs(folder, exist_ok=True)
    with open(os.path.join(folder, 'config.json'), 'w') as f:
        json.dump(config, f, indent=1)
        f.write('\n')
    write_safetensors(os.path.join(folder, 'model.safetensors'), {n: t if isinstance(t, tuple) else ('BF16', t) for n, t in weights.items()})
    write_safetensors(os.path.join(folder, 'golden.safetensors'), golden)
    if drafting:
        with open(os.path.join(folder, 'draft.json'), 'w') as f:
            json.dump(drafts[0], f)
            f.write('\n')
        write_safetensors(os.path.join(folder, 'draft.safetensors'), drafts[1])
    spread = flat(golden['prompt_logits'][1])
    print(f'{family}: seed {seed}, logits within {min(spread):.1f} to {max(spread):.1f}, '
          f'{len(set(golden["greedy_ids"][1]))} of {STEPS} greedy ids differ')


def main():
    for family in sys.argv[2:] or FAMILIES:
        make(sys.argv[1], family)


if __name__ == '__main__':
    main()
