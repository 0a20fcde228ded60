#include "emu/blocks/block.hpp"

namespace bitreplay {

/// Qwen3DecoderLayer of transformers: RMSNorm of every head of q and k before the rotary embedding.
void qwen3_layer(LayerRun& run) {
    const Tensor residual = run.hidden();
    const Tensor x = run.rms_norm("ln1", residual, "input_layernorm.weight");
    const Tensor q = run.linear("q", x, "self_attn.q_proj");
    const Tensor q_norm = run.rms_norm("q_norm", run.heads(q), "self_attn.q_norm.weight");
    const Tensor k = run.linear("k", x, "self_attn.k_proj");
    const Tensor k_norm = run.rms_norm("k_norm", run.heads(k), "self_attn.k_norm.weight");
    const Tensor v = run.linear("v", x, "self_attn.v_proj");
    const Tensor q_rope = run.rope("q_rope", q_norm);
    const Tensor k_rope = run.rope("k_rope", k_norm);
    const Tensor attn = run.attention("attn", q_rope, k_rope, run.heads(v));
    const Tensor o = run.linear("o", attn, "self_attn.o_proj");
    const Tensor middle = run.add("resid_mid", residual, o);

    const Tensor y = run.rms_norm("ln2", middle, "post_attention_layernorm.weight");
    const Tensor act = run.silu("act", run.linear("gate", y, "mlp.gate_proj"));
    const Tensor prod = run.multiply("prod", act, run.linear("up", y, "mlp.up_proj"));
    run.add("out", middle, run.linear("down", prod, "mlp.down_proj"));
}

}  // namespace bitreplay
