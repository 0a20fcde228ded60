// Exact walks of separate outputs: what the filter's bound leaves undecided. emu/FILTER.md, "Exact work".
#include "emu/simd/filter.hpp"

namespace bitreplay::BITREPLAY_ISA {
namespace {

using simd::LanesTask;
using simd::PairsTask;

constexpr int chunk = 32;  // products of a lane that are worked on at a time
constexpr int most_groups =
    8;  // groups of 16 lanes: their sums hide each other's latency, their products fit the cache

/// The products of one group of lanes, exact or below 2^-126 and then zero, and the largest exponent of each block.
struct Products {
    alignas(64) float value[chunk][16];
    std::int32_t exponent[chunk / 4][16];  // in place, as in an fp32
};

/// The pair product a0*b0 or a1*b1 that is left where the other operand of `a` is zero. Exact: a sum from zero.
BITREPLAY_INLINE inline F pair_product(I a, I b) {
    F out = _mm512_setzero_ps();
    asm("vdpbf16ps %2, %1, %0" : "+v"(out) : "v"(a), "v"(b));
    return out;
}

/// words(u, a, b) loads pair u of the chunk for both sides of each lane.
template <int block, class Words>
BITREPLAY_INLINE inline void multiply(const Words& words, int blocks, Products& out) {
    constexpr int units = block / 2;
    for (int i = 0; i < blocks; ++i) {
        I fields = constant(0);  // sums of two exponent fields, 7 bits up, in 16-bit lanes
        unrolled<units>([&](auto u) BITREPLAY_INLINE {
            I a, b;
            words(i * units + u.number, a, b);
            fields = _mm512_max_epu16(
                fields,
                _mm512_add_epi16(Simd::band(a, constant(simd::field_mask)), Simd::band(b, constant(simd::field_mask))));
            float* const to = out.value[i * block + 2 * u.number];
            Simd::store(to, pair_product(Simd::band(a, constant(0x0000FFFF)), b));
            Simd::store(to + 16, pair_product(Simd::band(a, constant(static_cast<std::int32_t>(0xFFFF0000))), b));
        });
        fields = _mm512_max_epu16(fields, Simd::template shift_right<16>(fields));
        Simd::store(out.exponent[i], Simd::sub(Simd::template shift_left<16>(fields), constant(127 << 23)));
    }
}

/// Lanes of a block whose products are all zero because an operand is.
template <int units, class Words>
__attribute__((noinline)) unsigned zero_products(const Words& words, int unit) {
    I some = constant(0);
    for (int u = unit; u < unit + units; ++u) {
        I a, b;
        words(u, a, b);
        some =
            Simd::bor(some, _mm512_min_epu16(Simd::band(a, constant(0x7FFF7FFF)), Simd::band(b, constant(0x7FFF7FFF))));
    }
    return Simd::equal(some, constant(0));
}

/// `blocks` blocks of up to most_groups groups of lanes; group(g) gives the words of one. Sets the bits of lanes whose
/// result is not right.
template <int block, class Group>
BITREPLAY_INLINE inline void exact_chunk(
    const Group& group, int groups, int blocks, int align, float* accs, std::uint16_t* unsafe) {
    Products products[most_groups];
    for (int g = 0; g < groups; ++g) multiply<block>(group(g), blocks, products[g]);
    // A zero operand counts with its partner's exponent here, at most filter_exponent - 127.
    const I lowest = constant((127 - simd::filter_exponent) << 23);
    for (int i = 0; i < blocks; ++i)
        for (int g = 0; g < groups; ++g) {
            const F acc = Simd::load(accs + 16 * g);
            const I x =
                Simd::max(Simd::load(products[g].exponent[i]), Simd::band(Simd::bits(acc), constant(exponent_bits)));
            const F scale = scale_of(x, align);
            const float* const values = products[g].value[i * block];
            I sum[2] = {Simd::truncate(Simd::mul(acc, scale)), constant(0)};
            unrolled<block>([&](auto k) BITREPLAY_INLINE {
                I& part = sum[2 * k.number >= block];
                part = Simd::add(part, Simd::truncate(Simd::mul(Simd::load(values + 16 * k.number), scale)));
            });
            F out = Simd::mul(rounded_sum<Result::fp32, (block >= 16)>(sum[0], sum[1]), unit_of(x, align));
            const unsigned high = Simd::greater(x, lowest);
            if (high != all_lanes) [[unlikely]] {
                // Lanes whose accumulator and products are all zero: exactly +0.
                const unsigned nothing = ~high & Simd::zero(acc) & zero_products<block / 2>(group(g), i * (block / 2));
                out = Simd::select(nothing, Simd::broadcast(0.0F), out);
                unsafe[g] |= static_cast<std::uint16_t>(~(high | nothing) & all_lanes);
            }
            Simd::store(accs + 16 * g, out);
        }
}

/// 16 x 16 words: row i of `in` becomes lane i of every output.
BITREPLAY_INLINE inline void transpose(const std::uint32_t* const* in, std::int64_t at, I (&out)[16]) {
    I t[16], s[16];
    unrolled<16>([&](auto i) BITREPLAY_INLINE { t[i.value] = _mm512_loadu_si512(in[i.value] + at); });
    unrolled<8>([&](auto i) BITREPLAY_INLINE {
        s[2 * i.value] = _mm512_unpacklo_epi32(t[2 * i.value], t[2 * i.value + 1]);
        s[2 * i.value + 1] = _mm512_unpackhi_epi32(t[2 * i.value], t[2 * i.value + 1]);
    });
    unrolled<4>([&](auto i) BITREPLAY_INLINE {
        t[4 * i.value] = _mm512_unpacklo_epi64(s[4 * i.value], s[4 * i.value + 2]);
        t[4 * i.value + 1] = _mm512_unpackhi_epi64(s[4 * i.value], s[4 * i.value + 2]);
        t[4 * i.value + 2] = _mm512_unpacklo_epi64(s[4 * i.value + 1], s[4 * i.value + 3]);
        t[4 * i.value + 3] = _mm512_unpackhi_epi64(s[4 * i.value + 1], s[4 * i.value + 3]);
    });
    unrolled<4>([&](auto i) BITREPLAY_INLINE {  // t[4 g + i]: words i, i+4, i+8, i+12 of the rows 4 g … 4 g + 3
        s[i.value] = _mm512_shuffle_i32x4(t[i.value], t[4 + i.value], 0x88);
        s[4 + i.value] = _mm512_shuffle_i32x4(t[i.value], t[4 + i.value], 0xDD);
        s[8 + i.value] = _mm512_shuffle_i32x4(t[8 + i.value], t[12 + i.value], 0x88);
        s[12 + i.value] = _mm512_shuffle_i32x4(t[8 + i.value], t[12 + i.value], 0xDD);
    });
    unrolled<4>([&](auto i) BITREPLAY_INLINE {
        out[i.value] = _mm512_shuffle_i32x4(s[i.value], s[8 + i.value], 0x88);
        out[8 + i.value] = _mm512_shuffle_i32x4(s[i.value], s[8 + i.value], 0xDD);
        out[4 + i.value] = _mm512_shuffle_i32x4(s[4 + i.value], s[12 + i.value], 0x88);
        out[12 + i.value] = _mm512_shuffle_i32x4(s[4 + i.value], s[12 + i.value], 0xDD);
    });
}

template <int block>
__attribute__((noinline)) void lanes_blocks(LanesTask& task) {
    constexpr int units = block / 2, groups = simd::lane_count / 16, step = chunk / block;
    alignas(64) std::uint32_t right[groups][chunk / 2][16];
    std::uint16_t unsafe[groups] = {};
    for (std::int64_t i = 0; i < task.blocks; i += step) {
        const auto blocks = static_cast<int>(task.blocks - i < step ? task.blocks - i : step);
        for (int g = 0; g < groups; ++g)
            for (int unit = 0; unit < blocks * units; unit += 16) {
                I words[16];
                transpose(task.b + g * 16, i * units + unit, words);
                unrolled<16>([&](auto u)
                                 BITREPLAY_INLINE { _mm512_store_si512(right[g][unit + u.number], words[u.value]); });
            }
        const auto group = [&](int g) BITREPLAY_INLINE {
            return [a = task.a + i * units, column = right[g]](int u, I& x, I& y) BITREPLAY_INLINE {
                x = constant(static_cast<std::int32_t>(a[u]));
                y = _mm512_load_si512(column[u]);
            };
        };
        exact_chunk<block>(group, groups, blocks, task.align_bits, task.acc, unsafe);
    }
    task.unsafe = 0;
    for (int g = 0; g < groups; ++g) task.unsafe |= static_cast<std::uint32_t>(unsafe[g]) << (16 * g);
}

void walk_lanes(LanesTask& task) noexcept {
    switch (task.block) {
        case 4: lanes_blocks<4>(task); break;
        case 8: lanes_blocks<8>(task); break;
        default: lanes_blocks<16>(task); break;
    }
}

template <int block>
__attribute__((noinline)) void pairs_blocks(const PairsTask& task) {
    constexpr int units = block / 2, step = chunk / block;
    // Equal shares of the groups, as few as possible.
    const std::int64_t all = task.count / 16, shares = (all + most_groups - 1) / most_groups;
    const std::int64_t together = (all + shares - 1) / shares;
    for (std::int64_t i = 0; i < task.blocks; i += step) {
        const auto blocks = static_cast<int>(task.blocks - i < step ? task.blocks - i : step);
        const std::uint32_t* const a = task.a + i * units * simd::group_rows;
        const std::uint32_t* const b = task.b + i * units * simd::strip_columns;
        for (int u = 0; u < chunk / 2; ++u) {  // the next chunk of both sides
            const std::uint32_t* const from = a + (chunk / 2 + u) * simd::group_rows;
            const std::uint32_t* const strip = b + (chunk / 2 + u) * simd::strip_columns;
            _mm_prefetch(from, _MM_HINT_T0);
            _mm_prefetch(from + 16, _MM_HINT_T0);
            _mm_prefetch(strip, _MM_HINT_T0);
            _mm_prefetch(strip + task.b_strip, _MM_HINT_T0);
        }
        for (std::int64_t at = 0; at < task.count; at += 16 * together) {
            const std::int64_t groups = (task.count - at) / 16;
            const auto group = [&](int g) BITREPLAY_INLINE {
                const I row = Simd::load(task.row + at + 16 * g), column = Simd::load(task.column + at + 16 * g);
                return [=, further = task.b_strip](int u, I& x, I& y) BITREPLAY_INLINE {
                    const std::uint32_t *const from = a + u * simd::group_rows, *const to = b + u * simd::strip_columns;
                    x = _mm512_permutex2var_epi32(_mm512_loadu_si512(from), row, _mm512_loadu_si512(from + 16));
                    y = _mm512_permutex2var_epi32(_mm512_loadu_si512(to), column, _mm512_loadu_si512(to + further));
                };
            };
            exact_chunk<block>(group,
                               static_cast<int>(groups < together ? groups : together),
                               blocks,
                               task.align_bits,
                               task.acc + at,
                               task.unsafe + at / 16);
        }
    }
}

void walk_pairs(const PairsTask& task) noexcept {
    switch (task.block) {
        case 4: pairs_blocks<4>(task); break;
        case 8: pairs_blocks<8>(task); break;
        default: pairs_blocks<16>(task); break;
    }
}

}  // namespace
}  // namespace bitreplay::BITREPLAY_ISA
