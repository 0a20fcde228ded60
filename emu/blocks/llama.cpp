#include "emu/blocks/block.hpp"

namespace bitreplay {

/// LlamaDecoderLayer of transformers; Mistral's is the same, Qwen2's has biases on q, k and v (LayerRun::linear adds a
/// bias where the weights have one).
void llama_layer(LayerRun& run) {
    const Tensor residual = run.hidden();
    const Tensor x = run.rms_norm("ln1", residual, "input_layernorm.weight");
    const Tensor q = run.linear("q", x, "self_attn.q_proj");
    const Tensor k = run.linear("k", x, "self_attn.k_proj");
    const Tensor v = run.linear("v", x, "self_attn.v_proj");
    const Tensor q_rope = run.rope("q_rope", run.heads(q));
    const Tensor k_rope = run.rope("k_rope", run.heads(k));
    const Tensor attn = run.attention("attn", q_rope, k_rope, run.heads(v));
    const Tensor o = run.linear("o", attn, "self_attn.o_proj");
    const Tensor middle = run.add("resid_mid", residual, o);

    const Tensor y = run.rms_norm("ln2", middle, "post_attention_layernorm.weight");
    const Tensor act = run.silu("act", run.linear("gate", y, "mlp.gate_proj"));
    const Tensor prod = run.multiply("prod", act, run.linear("up", y, "mlp.up_proj"));
    run.add("out", middle, run.linear("down", prod, "mlp.down_proj"));
}

}  // namespace bitreplay
