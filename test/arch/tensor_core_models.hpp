#pragma once
// The published table of tensor-core arithmetic (MMA-Sim, arXiv 2511.10909; Khattak & Mikaitis, arXiv 2512.07004), by
// compute capability. The tests hold the GPU files against it.

#include <optional>

#include "arch/gpu.hpp"
#include "test/oracle/tensor_core.hpp"

namespace bitreplay::test {

inline std::optional<oracle::TensorCore> published_model(int sm, const DotRule& rule) {
    using Kind = oracle::TensorCore::Kind;
    using Output = oracle::TensorCore::Output;
    const DotTypes& t = rule.types;
    if (t.d == fp64) return oracle::TensorCore{Kind::fma_chain, 1, 0, Output::fp64};
    const bool to_fp16 = t.d == fp16;
    const Output full = to_fp16 ? Output::rne_fp16 : Output::rz_fp32;
    const Output coarse = to_fp16 ? Output::rne_fp16 : Output::rz_e8m13;
    const bool ampere_or_ada = sm == 80 || sm == 86 || sm == 89;
    const bool since_hopper = sm == 90 || sm == 100 || sm == 120;
    if (t.a == fp16 || t.a == bf16) {
        if (sm == 70) return oracle::TensorCore{Kind::fused, 4, 23, full};
        if (sm == 75 || ampere_or_ada) return oracle::TensorCore{Kind::fused, 8, 24, full};
        if (since_hopper) return oracle::TensorCore{Kind::fused, 16, 25, full};
    }
    if (t.a == tf32) {
        if (ampere_or_ada) return oracle::TensorCore{Kind::fused, 4, 24, full};
        if (since_hopper) return oracle::TensorCore{Kind::fused, 8, 25, full};
    }
    if (t.a.storage_bits() <= 8) {
        if (sm == 89) return oracle::TensorCore{Kind::fused, 16, 13, coarse};
        if (sm == 90 && rule.family == "wgmma") return oracle::TensorCore{Kind::fused, 32, 13, coarse};
        if ((sm == 90 || sm == 100) && rule.family == "mma") return oracle::TensorCore{Kind::fp8_on_fp16, 16, 25, full};
        if (sm == 120 || (sm == 100 && rule.family == "tcgen05")) return oracle::TensorCore{Kind::fused, 32, 25, full};
    }
    return std::nullopt;
}

}  // namespace bitreplay::test
