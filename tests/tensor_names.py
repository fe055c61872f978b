"""Names of tensors as real programs write them, with what each is: role and layer.

Families that transformers can build are built in test_anatomy.py; these are the others.
"""

GGUF = """
token_embd.weight | embedding | -
output.weight | head | -
output_norm.weight | norm | -
blk.0.attn_q.weight | q | 0
blk.11.attn_k.weight | k | 11
blk.3.attn_v.bias | bias | 3
blk.3.attn_qkv.weight | qkv | 3
blk.3.attn_output.weight | attention output | 3
blk.3.attn_norm.weight | norm | 3
blk.3.attn_q_norm.weight | norm | 3
blk.3.ffn_norm.weight | norm | 3
blk.3.ffn_gate.weight | gate | 3
blk.3.ffn_up.weight | mlp in | 3
blk.3.ffn_down.weight | mlp out | 3
blk.3.ffn_gate_inp.weight | router | 3
blk.3.ffn_gate_exps.weight | expert in | 3
blk.3.ffn_up_exps.weight | expert in | 3
blk.3.ffn_down_exps.weight | expert out | 3
blk.3.ffn_up_shexp.weight | expert in | 3
blk.3.attn_kv_a_mqa.weight | latent | 3
blk.3.attn_kv_b.weight | latent | 3
blk.3.attn_q_a.weight | latent | 3
blk.3.attn_q_a_norm.weight | norm | 3
blk.3.ssm_in.weight | ssm | 3
blk.3.ssm_conv1d.weight | ssm | 3
blk.3.ssm_a | ssm | 3
blk.3.ssm_d | ssm | 3
blk.3.ssm_out.weight | ssm | 3
position_embd.weight | embedding | -
token_types.weight | embedding | -
blk.2.attn_q.weight.lora_a | lora | 2
"""

MEGATRON = """
embedding.word_embeddings.weight | embedding | -
embedding.position_embeddings.weight | embedding | -
language_model.embedding.word_embeddings.weight | embedding | -
decoder.layers.7.self_attention.linear_qkv.weight | qkv | 7
decoder.layers.7.self_attention.linear_qkv.layer_norm_weight | norm | 7
decoder.layers.7.self_attention.linear_proj.weight | attention output | 7
decoder.layers.7.mlp.linear_fc1.weight | mlp in | 7
decoder.layers.7.mlp.linear_fc1.layer_norm_weight | norm | 7
decoder.layers.7.mlp.linear_fc2.weight | mlp out | 7
decoder.layers.7.mlp.router.weight | router | 7
decoder.layers.7.mlp.experts.local_experts.3.linear_fc1.weight | expert in | 7
decoder.layers.7.mlp.experts.linear_fc2.weight12 | expert out | 7
decoder.layers.7.self_attention.linear_kv_down_proj.weight | latent | 7
decoder.layers.7.self_attention.linear_q_up_proj.weight | latent | 7
decoder.final_layernorm.weight | norm | -
output_layer.weight | head | -
language_model.encoder.layers.7.self_attention.query_key_value.weight | qkv | 7
language_model.encoder.layers.7.mlp.dense_h_to_4h.weight | mlp in | 7
language_model.output_layer.weight | head | -
sequential.2.attention.query_key_value.weight | qkv | 2
sequential.0.word_embeddings.weight | embedding | -
"""

HAND_WRITTEN = """
token_embedding_table.weight | embedding | -
position_embedding_table.weight | embedding | -
tok_emb.weight | embedding | -
pos_emb | embedding | -
emb.weight | embedding | -
embed.weight | embedding | -
pos | embedding | -
pos_embedding | embedding | -
transformer.wte.weight | embedding | -
src_embed.0.lut.weight | embedding | -
src_tok_emb.embedding.weight | embedding | -
lm_head.weight | head | -
head.weight | head | -
fc_out.weight | head | -
proj_out.weight | head | -
to_logits.weight | head | -
to_logits.bias | head | -
classifier.weight | head | -
classifier.0.weight | head | -
generator.proj.weight | head | -
blocks.1.sa.heads.0.key.weight | k | 1
blocks.1.sa.heads.0.query.weight | q | 1
blocks.1.sa.proj.weight | attention output | 1
blocks.1.ffwd.net.0.weight | mlp in | 1
blocks.1.ffwd.net.2.weight | mlp out | 1
blocks.1.ln1.weight | norm | 1
ln_f.weight | norm | -
encoder.layers.2.self_attn.linears.0.weight | q | 2
encoder.layers.2.self_attn.linears.3.weight | attention output | 2
encoder.layers.2.feed_forward.w_1.weight | mlp in | 2
encoder.layers.2.feed_forward.w_2.weight | mlp out | 2
encoder.layers.2.sublayer.0.norm.a_2 | norm | 2
transformer_blocks.4.attention.W_query.weight | q | 4
transformer_blocks.4.att.W_key.weight | k | 4
trf_blocks.4.att.out_proj.weight | attention output | 4
trf_blocks.4.ff.layers.0.weight | mlp in | 4
trf_blocks.4.ff.layers.2.weight | mlp out | 4
out_head.weight | head | -
blocks.2.attn.Wo.weight | attention output | 2
blocks.2.attn.Wq.weight | q | 2
meta_tokens | embedding | -
blocks.2.ssm.A_log | ssm | 2
blocks.2.ssm.dt_proj.weight | ssm | 2
"""

TRANSFORMER_LENS = """
embed.W_E | embedding | -
pos_embed.W_pos | embedding | -
blocks.5.attn.W_Q | q | 5
blocks.5.attn.W_K | k | 5
blocks.5.attn.W_V | v | 5
blocks.5.attn.W_O | attention output | 5
blocks.5.attn.b_Q | bias | 5
blocks.5.mlp.W_in | mlp in | 5
blocks.5.mlp.W_gate | gate | 5
blocks.5.mlp.W_out | mlp out | 5
blocks.5.mlp.b_in | bias | 5
blocks.5.ln1.w | norm | 5
ln_final.w | norm | -
unembed.W_U | head | -
unembed.b_U | head | -
"""

OTHER_PROGRAMS = """
tok_embeddings.weight | embedding | -
layers.4.attn.q_proj.weight | q | 4
layers.4.attn.output_proj.weight | attention output | 4
layers.4.mlp.w1.weight | mlp in | 4
layers.4.mlp.w2.weight | mlp out | 4
layers.4.sa_norm.scale | norm | 4
layers.4.moe.router.gate.weight | router | 4
layers.4.moe.experts.w1 | expert in | 4
layers.4.moe.experts.w2 | expert out | 4
layers.4.moe.shared_experts.w3.weight | expert in | 4
layers.4.attention.wkv_a.weight | latent | 4
layers.4.attention.wq_b.weight | latent | 4
transformer.h.4.attn.qkv.weight | qkv | 4
transformer.h.4.attn.proj.weight | attention output | 4
transformer.h.4.mlp.fc_1.weight | mlp in | 4
transformer.h.4.mlp.proj.weight | mlp out | 4
transformer.h.4.norm_1.weight | norm | 4
decoder.embed_tokens.weight | embedding | -
decoder.output_projection.weight | head | -
decoder.layers.4.encoder_attn.k_proj.weight | k | 4
decoder.layers.4.fc1.weight | mlp in | 4
token_emb.emb.weight | embedding | -
pos_emb.emb.weight | embedding | -
attn_layers.layers.0.1.to_q.weight | q | 0
attn_layers.layers.0.1.to_out.weight | attention output | 0
attn_layers.layers.1.1.ff.0.0.weight | mlp in | 1
attn_layers.layers.1.1.ff.2.weight | mlp out | 1
emb.weight | embedding | -
blocks.3.att.time_decay | ssm | 3
blocks.3.att.time_maa_k | ssm | 3
blocks.3.att.x_r | ssm | 3
blocks.3.att.w1 | ssm | 3
blocks.3.att.receptance.weight | q | 3
blocks.3.att.key.weight | k | 3
blocks.3.att.output.weight | attention output | 3
blocks.3.ffn.key.weight | mlp in | 3
blocks.3.ffn.value.weight | mlp out | 3
blocks.3.ffn.x_k | ssm | 3
backbone.embedding.weight | embedding | -
backbone.layers.3.mixer.A_log | ssm | 3
backbone.layers.3.mixer.D | ssm | 3
backbone.layers.3.mixer.in_proj.weight | ssm | 3
backbone.layers.3.mixer.dt_bias | bias | 3
backbone.layers.3.mixer.conv1d.weight | ssm | 3
backbone.layers.3.mixer.norm.weight | norm | 3
backbone.norm_f.weight | norm | -
base_model.model.model.layers.3.self_attn.q_proj.lora_A.default.weight | lora | 3
base_model.model.model.layers.3.self_attn.q_proj.lora_magnitude_vector.default.weight | lora | 3
base_model.model.model.layers.3.self_attn.q_proj.base_layer.weight | q | 3
base_model.model.model.embed_tokens.lora_embedding_A.default | lora | -
base_model.model.model.embed_tokens.base_layer.weight | embedding | -
base_model.model.lm_head.modules_to_save.default.weight | head | -
model.layers.2.block_sparse_moe.experts.5.w1.weight | expert in | 2
model.layers.2.block_sparse_moe.experts.5.w2.weight | expert out | 2
model.layers.2.block_sparse_moe.gate.weight | router | 2
model.layers.2.mlp.shared_expert_gate.weight | router | 2
"""

VISION = """
cls_token | embedding | -
pos_embed | embedding | -
patch_embed.proj.weight | embedding | -
patch_embed.proj.bias | embedding | -
blocks.7.attn.qkv.weight | qkv | 7
blocks.7.attn.proj.weight | attention output | 7
blocks.7.mlp.fc1.weight | mlp in | 7
blocks.7.mlp.w12.weight | mlp in | 7
blocks.7.mlp.w3.weight | mlp out | 7
blocks.7.ls1.gamma | other | 7
blocks.7.norm1.weight | norm | 7
fc_norm.weight | norm | -
register_tokens | embedding | -
mask_token | embedding | -
layers.1.blocks.0.attn.relative_position_bias_table | bias | 1
conv_proj.weight | embedding | -
class_token | embedding | -
encoder.layers.encoder_layer_7.self_attention.in_proj_weight | qkv | 7
encoder.layers.encoder_layer_7.mlp.linear_1.weight | mlp in | 7
heads.head.weight | head | -
to_patch_embedding.1.weight | embedding | -
transformer.layers.3.0.to_qkv.weight | qkv | 3
transformer.layers.3.0.to_out.0.weight | attention output | 3
visual.class_embedding | embedding | -
visual.conv1.weight | embedding | -
visual.transformer.resblocks.3.attn.in_proj_weight | qkv | 3
visual.transformer.resblocks.3.mlp.c_fc.weight | mlp in | 3
token_embedding.weight | embedding | -
positional_embedding | embedding | -
text_projection | head | -
"""

JAX_AND_KERAS = """
params/wte/embedding | embedding | -
transformer/h/3/attn/c_attn/kernel | qkv | 3
params/h_3/mlp/c_fc/kernel | mlp in | 3
params/lm_head/kernel | head | -
embedding/kernel | embedding | -
Transformer/posembed_input/pos_embedding | embedding | -
Transformer/encoderblock_3/MultiHeadDotProductAttention_1/query/kernel | q | 3
Transformer/encoderblock_3/MultiHeadDotProductAttention_1/out/kernel | attention output | 3
Transformer/encoderblock_3/MlpBlock_3/Dense_0/kernel | mlp in | 3
Transformer/encoderblock_3/MlpBlock_3/Dense_1/kernel | mlp out | 3
Transformer/encoderblock_3/LayerNorm_0/scale | norm | 3
Transformer/encoder_norm/scale | norm | -
head/kernel | head | -
decoder/layers_3/self_attention/query/kernel | q | 3
decoder/layers_3/mlp/wi_0/kernel | gate | 3
token_embedder/embedding | embedding | -
decoder/logits_dense/kernel | head | -
bert/encoder/layer_3/attention/self/query/kernel | q | 3
bert/encoder/layer_3/output/dense/kernel | mlp out | 3
bert/embeddings/word_embeddings | embedding | -
tf_bert_model/bert/encoder/layer_._3/attention/self/key/kernel:0 | k | 3
transformer_layer_3/self_attention_layer/query/kernel | q | 3
token_and_position_embedding/token_embedding/embeddings | embedding | -
"""

STRANGERS = """
model.transformer.ff_out.weight | head | -
model.transformer.blocks.3.ff_out.weight | mlp out | 3
mlp_head.1.weight | head | -
lg_mlp_head.1.bias | head | -
transformer.layers.3.1.fn.net.0.weight | mlp in | 3
transformer.layers.3.1.net.4.weight | mlp out | 3
head.mlp.4.weight | head | -
head.last_layer.weight_v | head | -
decoder_pred.weight | head | -
predict_action.0.weight | head | -
decoder.prediction.dec_rnn.lstm.weight_ih_l0 | other | -
graph_attn_bias.spatial_pos_encoder.weight | bias | -
t_embedder.mlp.0.weight | embedding | -
final_layer.linear.weight | head | -
mask_lm.linear.bias | head | -
model.layers.61.shared_head.head.weight | head | -
blk.61.nextn.shared_head_head.weight | head | -
model.layers.61.enorm.weight | norm | 61
model.image_newline | embedding | -
t5_proj.weight | other | -
up_blocks.2.resnets.1.time_emb_proj.weight | other | 2
transformer_blocks.4.norm1_context.linear.weight | other | 4
decoder.layers.4.self_attn.relative_pos_embeddings.weight | bias | 4
fine_acoustics.input_embeds_layers.3.weight | embedding | -
transformer.h.4.attn.adapter_wte.weight | lora | 4
prompt_encoder.default.transform.2.weight | lora | -
prompt_encoder.point_embeddings.1.weight | embedding | -
encoder.layer_stack.2.pos_ffn.w_1.weight | mlp in | 2
encoder.layers.2.attention.w_concat.weight | attention output | 2
tblocks.2.attention.tokeys.weight | k | 2
bert.transformer_blocks.2.attention.linear_layers.1.weight | k | 2
encoder.transformer.2.self_attn.final_linear.weight | attention output | 2
encoder_l2_self_Wq | q | 2
decoder_l2_ffn_W2 | mlp out | 2
decoder_ff_logit_out_b | head | -
Wemb | embedding | -
model/h2/attn/c_attn/b | bias | 2
transformer/layer_2/attn/kv_einsum/w | qkv | 2
transformer/layer_2/attn/attn_vec_einsum/w | attention output | 2
transformer/layer_2/mlp/gating_einsum/w | mlp in | 2
transformer/decoder_layer_2/moe/linear_v/w | expert in | 2
transformer/decoder_layer_2/moe/linear_1/w | expert out | 2
blocks.2.attn.qkv_w | qkv | 2
blocks.2.mlp_block.ffw_down.weight | mlp out | 2
decoder_block_2/ffw_gating/kernel | gate | 2
encoder.layer.2.mlp.gated_layers.weight | mlp in | 2
transformer.h.2.mlp.c_fc_0.weight | gate | 2
model.layers.2.self_attn.vision_expert_query_key_value.weight | qkv | 2
model.layers.2.self_attn.f_a_proj.weight | ssm | 2
layers.2.retention.g_proj.weight | gate | 2
bert.encoder.layer.2.intermediate_query.dense.weight | mlp in | 2
"""

TABLES = (GGUF, MEGATRON, HAND_WRITTEN, TRANSFORMER_LENS, OTHER_PROGRAMS, VISION, JAX_AND_KERAS)


def table() -> list[tuple[str, str, int | None]]:
    """Every name with its role and layer."""
    rows = []
    for text in (*TABLES, STRANGERS):
        for line in text.strip().splitlines():
            name, role, layer = (part.strip() for part in line.split("|"))
            rows.append((name, role, None if layer == "-" else int(layer)))
    return rows
