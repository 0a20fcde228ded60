#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "emu/params.hpp"
#include "emu/tensor.hpp"

namespace bitreplay {

/// What a decoder layer needs of a Hugging Face config.json.
struct LayerConfig {
    std::int64_t hidden, heads, kv_heads, head_dim, intermediate;
    double rms_norm_eps;

    /// Strict: InputError for missing or unknown keys and values out of range, NotModelled for what a layer here does not
    /// have (sliding windows, other activations).
    static LayerConfig read(const Params& config);

    /// Shape of the layer's weight of that Hugging Face name ("self_attn.q_proj.weight"); nullopt if there is none.
    std::optional<std::vector<std::int64_t>> weight_shape(const std::string& name) const;
};

/// The rotary frequencies that transformers computes on the CPU from a config, fp32 [head_dim / 2]: rope types "default" and
/// "llama3" (torch_cpu::inverse_frequencies, llama3_frequencies). NotModelled for every other type, a partial rotary
/// dimension, and a config that names no rope_theta.
Tensor rotary_frequencies(const Params& config, std::int64_t head_dim);

}  // namespace bitreplay
