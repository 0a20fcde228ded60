#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "arch/dot.hpp"
#include "emu/tensor.hpp"
#include "reduction_trees/plan.hpp"

namespace bitreplay {

class PackedWeights;

/// Which implementation computes; for tests and benchmarks. All give the same bits.
enum class GemmEngine : std::uint8_t {
    automatic,  ///< the fastest that this rule and CPU have
    scalar,     ///< the definition
    dense,      ///< a vector kernel for every output
    filtered,   ///< gemm_rounded only: an approximation with a proved bound, exact where the bound does not decide
};

/// out[i][j] = sum over k of x[i][k] * w[j][k] for the listed rows i and columns j, in the order of a plan.
struct GemmTask {
    const DotRule& rule;    ///< arithmetic of the instruction
    int instruction_k;      ///< depth of one instruction, the step of a walk
    const Plan& plan;       ///< order of the sum; its ranges lie in [0, K)
    Tensor x;               ///< [M, K] codes of rule.types.a
    Tensor w;               ///< [N, K] codes of rule.types.b (a row per output column)
    Format result;          ///< what Merge::Precision::result stands for (the kernel's output type)
    std::span<const std::int64_t> rows;  ///< rows of x to compute, any order
    std::span<const std::int64_t> cols;  ///< rows of w to compute
    const PackedWeights* packed = nullptr;  ///< w and cols packed before, for the same rule, instruction_k and plan
    GemmEngine engine = GemmEngine::automatic;
    std::string_view kernel = {};  ///< restricts dense and filtered to one row of simd/dot_kernels.inc
};

/// Accumulators [rows, cols] as codes of rule.types.d (fp32 or fp16), before the epilogue and the final rounding.
/// Threads share out independent outputs, so the result does not depend on their number.
Tensor gemm_accumulators(const GemmTask& task);

/// The accumulators rounded once to `out` (nearest even): the whole epilogue of a GEMM without bias or scale. For bf16 and
/// fp16 much faster than rounding gemm_accumulators; the same bits. `redone`: share of outputs that the filter left to the
/// exact kernel (1 where it was not used), for benchmarks.
Tensor gemm_rounded(const GemmTask& task, const Format& out, double* redone = nullptr);

/// gemm_accumulators by the scalar definition: dot_walk for every walk of the plan. Every faster path equals it bit for bit.
Tensor gemm_accumulators_scalar(const GemmTask& task);

/// Watches the scalar definition evaluate a plan. Watching changes no bit.
class SumObserver : public DotObserver {
public:
    /// A node of the plan begins; its parts and steps follow, in the order in which they are computed, then its end.
    virtual void begin(const Plan& plan) = 0;
    /// The part evaluated last was added: `part` is its value as added, `sum` the running sum after it.
    virtual void merged(std::uint64_t part, std::uint64_t sum) = 0;
    virtual void end(std::uint64_t value) = 0;
};

/// The accumulator of output (row, col) by the scalar definition, watched. Codes of rule.types.d.
std::uint64_t observe_accumulator(const GemmTask& task, std::int64_t row, std::int64_t col, SumObserver& observer);

}  // namespace bitreplay
