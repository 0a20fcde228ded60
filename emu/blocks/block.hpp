#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "emu/blocks/config.hpp"
#include "emu/ops/op.hpp"

namespace bitreplay {

/// One run of a model block. Its methods are the layer's operations; each is named by a stage, computes with the op of the
/// same kind that a manifest could call, reports the result and returns what the next stage is fed with: the result
/// itself, or the recorded tensor of that stage if the request has one (OpRequest::recorded).
///
/// A stage without a model ends the run, unless a recorded tensor can stand in for it: see OpResult::not_modelled.
class LayerRun {
public:
    using Callback = std::function<void(const std::string& stage, const Tensor& tensor)>;

    /// `request` is a decoder_layer op: inputs hidden [M, H], weights/NAME, optional inv_freq [d/2] (else
    /// rotary_frequencies() of the config), optional k_cache and v_cache [kv heads, cached, d] (keys after the rotary
    /// embedding) that precede the M new tokens. Weights must have the shapes of the config.
    LayerRun(const OpRequest& request, Callback callback);

    /// Stages without a model for which recorded tensors stood in, and why.
    const std::map<std::string, std::string>& missing() const noexcept { return missing_; }

    /// After the last stage: InputError if a weight was given that no stage used.
    void check_all_used() const;

    const LayerConfig& config() const noexcept { return config_; }
    const Tensor& hidden() const { return request_.input("hidden"); }

    /// x·wᵀ (+ bias if the weights have one); weight is a name such as "self_attn.q_proj".
    Tensor linear(const std::string& stage, const Tensor& x, const std::string& weight);
    /// RMSNorm over the last dimension as Hugging Face writes it.
    Tensor rms_norm(const std::string& stage, const Tensor& x, const std::string& weight);
    /// Rotary embedding of x [M, heads, d].
    Tensor rope(const std::string& stage, const Tensor& x);
    /// Attention of q [M, heads, d] over the cache and k, v [M, kv heads, d]; result [M, heads * d].
    Tensor attention(const std::string& stage, const Tensor& q, const Tensor& k, const Tensor& v);
    Tensor silu(const std::string& stage, const Tensor& x);
    Tensor multiply(const std::string& stage, const Tensor& a, const Tensor& b);
    Tensor add(const std::string& stage, const Tensor& a, const Tensor& b);
    /// [M, n * d] seen as [M, n, d].
    Tensor heads(const Tensor& x) const;

private:
    using Inputs = std::map<std::string, Tensor>;
    /// Computes, reports, and hands on the result or the recorded tensor in its place.
    Tensor stage(const std::string& name, const std::vector<std::int64_t>& shape, const std::function<Tensor()>& compute);
    Tensor run(const std::string& name, const std::string& op, Inputs in, const Params& params, const std::vector<std::int64_t>& shape);
    OpResult call(const std::string& stage, const std::string& op, Inputs in, const Params& params) const;
    const Tensor& weight(const std::string& name) const;
    Tensor with_cache(const std::string& cache, const Tensor& x) const;
    void make_rope_table();

    const OpRequest& request_;
    Callback callback_;
    Params config_json_;
    LayerConfig config_;
    Params kernels_;
    std::vector<std::int64_t> positions_;
    Tensor cos_, sin_;
    std::map<std::string, std::string> missing_;
    mutable std::set<std::string> used_;  // names of inputs
};

/// A decoder layer of one model family: a straight line of stages. The list is blocks.inc.
using BlockFunction = void (*)(LayerRun& run);
BlockFunction find_block(std::string_view model) noexcept;

}  // namespace bitreplay
