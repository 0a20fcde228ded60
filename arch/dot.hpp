#pragma once

#include <cstdint>
#include <span>

#include "arch/gpu.hpp"
#include "formats/decode.hpp"

namespace bitreplay {

/// A multiplication operand as the unit sees it: value = significand * 2^(exponent - fraction_bits), signed.
struct Operand {
    std::int64_t significand;
    std::int32_t exponent;
    Kind kind;
    bool negative;
};

/// Decodes a code of `stored`, converted exactly to `unit` first (fp8 on a unit that multiplies fp16).
Operand decode_operand(const Format& stored, const Format& unit, std::uint64_t bits) noexcept;

/// Decodes `bits` (codes of rule.types.a) into out; the spans have one length.
void decode_a(const DotRule& rule, std::span<const std::uint32_t> bits, std::span<Operand> out) noexcept;
void decode_b(const DotRule& rule, std::span<const std::uint32_t> bits, std::span<Operand> out) noexcept;

/// One summand of a fused step: exactly significand * 2^(exponent - fraction_bits), of which the step keeps kept *
/// 2^(top - align_bits).
struct DotTerm {
    std::int64_t k;  ///< which product; -1: the accumulator
    std::int64_t significand;
    int exponent, fraction_bits;
    std::int64_t kept;
};

/// One step as it was executed.
struct DotEvent {
    const DotStep& step;
    std::int64_t first, last;         ///< products [first, last) of the walk: those of a fused step, or else the instruction's
    Format c_format;
    std::uint64_t c;                  ///< the accumulator before
    std::uint64_t addend;             ///< add_c: what is added to it, a code of rule.types.c
    std::uint64_t d;                  ///< the accumulator after, a code of rule.types.d
    bool special;                     ///< NaN or infinity took part: no terms
    int top;                          ///< the largest exponent of a term that is not zero
    std::span<const DotTerm> terms;   ///< of a fused step: the accumulator, then the products in k order
    std::int64_t sum;                 ///< of the kept terms, in units of 2^(top - align_bits)
};

/// Watches the definition at work. Watching changes no bit: the same code runs.
class DotObserver {
public:
    virtual ~DotObserver() = default;
    virtual void step(const DotEvent& event) = 0;
};

/// One instruction for one output: a·b + c. The spans hold at most the instruction's K products (fewer: the rest is
/// zero); c and the result are codes of rule.types.c and .d. NaN results are canonical. Integer arithmetic only.
/// Source: T-FDPA of Xie et al. (arXiv 2511.10909), NFMA of Khattak & Mikaitis (arXiv 2512.07004); proved on the
/// captures named in each rule's evidence. This is the definition; every faster kernel equals it bit for bit.
std::uint64_t dot_add(const DotRule& rule, std::span<const Operand> a, std::span<const Operand> b, std::uint64_t c) noexcept;

/// A chain of instructions of depth `instruction_k` along k: d of one is c of the next. The last one may be short.
std::uint64_t dot_walk(const DotRule& rule,
                       int instruction_k,
                       std::span<const Operand> a,
                       std::span<const Operand> b,
                       std::uint64_t c) noexcept;

/// The same, watched. `first`: what the caller calls the first product.
std::uint64_t dot_walk(const DotRule& rule,
                       int instruction_k,
                       std::span<const Operand> a,
                       std::span<const Operand> b,
                       std::uint64_t c,
                       std::int64_t first,
                       DotObserver& observer);

/// The multiply-add of a CUDA core as a rule of depth 1: acc = f32::fma(a, b, acc), operands fp32, bf16 or fp16 (widened
/// exactly), or the same in FP64 of two fp64 operands, where which NaN comes out is not known. The same on every GPU, see
/// arch/fp32.hpp. nullptr for other formats.
const DotRule* cuda_core_rule(const Format& a, const Format& b) noexcept;
/// Whether a rule is a chain of FP32 multiply-adds.
bool is_fp32_chain(const DotRule& rule) noexcept;

}  // namespace bitreplay
