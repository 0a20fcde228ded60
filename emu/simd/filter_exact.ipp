// Exact walks of separate outputs: what the filter's bound leaves undecided. emu/FILTER.md, "Exact work".
#include "emu/simd/filter.hpp"

namespace bitreplay::BITREPLAY_ISA {
namespace {

using simd::LanesTask;
using simd::PairsTask;
using simd::PairVector;

/// The pair product a0*b0 or a1*b1 that is left where the other operand of `a` is zero. Exact: a sum from zero.
BITREPLAY_INLINE inline F pair_product(I a, I b) {
    F out = _mm512_setzero_ps();
    asm("vdpbf16ps %2, %1, %0" : "+v"(out) : "v"(a), "v"(b));
    return out;
}

/// Lanes of a block whose products are all zero because an operand is.
template <int units, class Words, class Vector>
__attribute__((noinline)) unsigned zero_products(const Words& words, Vector v, std::int64_t block) {
    I some = constant(0);
    for (int u = 0; u < units; ++u) {
        I a, b;
        words(v, block, u, a, b);
        some =
            Simd::bor(some, _mm512_min_epu16(Simd::band(a, constant(0x7FFF7FFF)), Simd::band(b, constant(0x7FFF7FFF))));
    }
    return Simd::equal(some, constant(0));
}

/// Blocks [0, blocks) of `count` vectors of 16 lanes, all adding to their own accumulators. words(v, i, u, a, b) loads
/// pair u of block i for both sides of each lane of vector v. Sets the bits of lanes whose result is not right.
///
/// The sum of a block waits for its largest exponent. So the terms of one block are added while the products of the
/// next block (of the next vector) are computed: products stay in registers.
template <int block, int count, class Words>
BITREPLAY_INLINE inline void exact_walk(
    const Words& words, std::int64_t blocks, int align, F (&acc)[static_cast<Size>(count)], std::uint16_t* unsafe) {
    constexpr int units = block / 2;
    F product[static_cast<Size>(block)];
    I fields;  // sums of two exponent fields, 7 bits up, in 16-bit lanes
    const auto multiply = [&](auto v, std::int64_t i, auto u) BITREPLAY_INLINE {
        I a, b;
        words(v, i, u.number, a, b);
        const I sum =
            _mm512_add_epi16(Simd::band(a, constant(simd::field_mask)), Simd::band(b, constant(simd::field_mask)));
        fields = u.number == 0 ? sum : _mm512_max_epu16(fields, sum);
        product[2 * u.value] = pair_product(Simd::band(a, constant(0x0000FFFF)), b);
        product[2 * u.value + 1] = pair_product(Simd::band(a, constant(static_cast<std::int32_t>(0xFFFF0000))), b);
    };
    // Ends block i of vector v, whose products are there; meanwhile(u) comes after each pair of terms.
    const auto add = [&](auto v, std::int64_t i, const auto& meanwhile) BITREPLAY_INLINE {
        const F old = acc[v.value];
        fields = _mm512_max_epu16(fields, Simd::template shift_right<16>(fields));
        const I largest = Simd::sub(Simd::template shift_left<16>(fields), constant(127 << 23));
        const I x = Simd::max(largest, Simd::band(Simd::bits(old), constant(exponent_bits)));
        const F scale = scale_of(x, align);
        I sum[2] = {Simd::truncate(Simd::mul(old, scale)), constant(0)};
        unrolled<units>([&](auto u) BITREPLAY_INLINE {
            I& part = sum[2 * u.number >= units];
            const I even = Simd::truncate(Simd::mul(product[2 * u.value], scale));
            const I odd = Simd::truncate(Simd::mul(product[2 * u.value + 1], scale));
            part = Simd::add(part, Simd::add(even, odd));
            Simd::pin(part);
            meanwhile(u);
        });
        F out = Simd::mul(rounded_sum<Result::fp32, (block >= 16)>(sum[0], sum[1]), unit_of(x, align));
        // A zero operand counts with its partner's exponent here, at most filter_exponent - 127.
        const unsigned high = Simd::greater(x, constant((127 - simd::filter_exponent) << 23));
        if (high != all_lanes) [[unlikely]] {
            // Lanes whose accumulator and products are all zero: exactly +0.
            const unsigned nothing = ~high & Simd::zero(old) & zero_products<units>(words, v, i);
            out = Simd::select(nothing, Simd::broadcast(0.0F), out);
            unsafe[v.value] |= static_cast<std::uint16_t>(~(high | nothing) & all_lanes);
        }
        acc[v.value] = out;
    };
    unrolled<units>([&](auto u) BITREPLAY_INLINE { multiply(Index<0>{}, 0, u); });
    for (std::int64_t i = 0; i + 1 < blocks; ++i)
        unrolled<count>([&](auto v) BITREPLAY_INLINE {
            constexpr int next = (v.number + 1) % count;
            add(v, i, [&](auto u) BITREPLAY_INLINE { multiply(Index<next>{}, i + (next == 0), u); });
        });
    unrolled<count - 1>([&](auto v) BITREPLAY_INLINE {
        add(v, blocks - 1, [&](auto u) BITREPLAY_INLINE { multiply(Index<v.number + 1>{}, blocks - 1, u); });
    });
    add(Index<count - 1>{}, blocks - 1, [](auto) BITREPLAY_INLINE {});
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

void interleave(const std::uint32_t* const* rows, std::int64_t units, std::uint32_t* to) noexcept {
    std::int64_t unit = 0;
    for (; unit + 16 <= units; unit += 16) {
        I words[16];
        transpose(rows, unit, words);
        unrolled<16>([&](auto u)
                         BITREPLAY_INLINE { _mm512_storeu_si512(to + (unit + u.number) * 16, words[u.value]); });
    }
    for (; unit < units; ++unit)
        for (int r = 0; r < 16; ++r) __builtin_memcpy(to + unit * 16 + r, rows[r] + unit, sizeof *to);
}

template <int block>
__attribute__((noinline)) void lanes_blocks(LanesTask& task) {
    constexpr int units = block / 2, groups = simd::lane_count / 16, chunk = 32, step = chunk / block;
    alignas(64) std::uint32_t right[groups][chunk / 2][16];
    std::uint16_t unsafe[groups] = {};
    F acc[groups];
    for (int v = 0; v < groups; ++v) acc[v] = Simd::load(task.acc + 16 * v);
    for (std::int64_t first = 0; first < task.blocks; first += step) {
        const std::int64_t blocks = task.blocks - first < step ? task.blocks - first : step;
        for (int v = 0; v < groups; ++v) {
            I words[16];  // of the whole chunk
            transpose(task.b + v * 16, first * units, words);
            unrolled<16>([&](auto u) BITREPLAY_INLINE { _mm512_store_si512(right[v][u.number], words[u.value]); });
        }
        const auto words = [&, a = task.a + first * units * simd::strip_rows](auto v, std::int64_t i, int u, I& x, I& y)
                               BITREPLAY_INLINE {
                                   x = constant(static_cast<std::int32_t>(a[(i * units + u) * simd::strip_rows]));
                                   y = _mm512_load_si512(right[v.value][i * units + u]);
                               };
        exact_walk<block, groups>(words, blocks, task.align_bits, acc, unsafe);
    }
    task.unsafe = 0;
    for (int v = 0; v < groups; ++v) {
        Simd::store(task.acc + 16 * v, acc[v]);
        task.unsafe |= static_cast<std::uint32_t>(unsafe[v]) << (16 * v);
    }
}

void walk_lanes(LanesTask& task) noexcept {
    switch (task.block) {
        case 4: lanes_blocks<4>(task); break;
        case 8: lanes_blocks<8>(task); break;
        default: lanes_blocks<16>(task); break;
    }
}

constexpr int chunk_products = 128;  // whose operands stay in the first-level cache

/// Blocks [first, first + blocks) of `count` vectors.
template <int block, int count>
__attribute__((noinline)) void pairs_walk(const PairsTask& task,
                                          std::int64_t vector,
                                          std::int64_t first,
                                          std::int64_t blocks) {
    constexpr int units = block / 2;
    constexpr auto N = static_cast<Size>(count);
    I row[N], column[N];
    F acc[N];
    const std::uint32_t* a[N];
    const std::uint32_t* b[N];
    unrolled<count>([&](auto v) BITREPLAY_INLINE {
        const PairVector& lanes = task.vectors[vector + v.number];
        row[v.value] = Simd::load(lanes.row);
        column[v.value] = Simd::load(lanes.column);
        acc[v.value] = Simd::load(task.acc + 16 * (vector + v.number));
        a[v.value] = task.a + lanes.a + (task.first + first) * units * simd::strip_rows;
        b[v.value] = task.b + lanes.b + (task.first + first) * units * simd::strip_columns;
    });
    const auto words = [&](auto v, std::int64_t i, int u, I& x, I& y) BITREPLAY_INLINE {
        const std::uint32_t* const left = a[v.value] + (i * units + u) * simd::strip_rows;
        const std::uint32_t* const right = b[v.value] + (i * units + u) * simd::strip_columns;
        // The same place of the next chunk: one vector of two fetches the rows, the other one the columns.
        constexpr std::int64_t ahead = chunk_products / 2 * 16;
        _mm_prefetch((v.number == 0 ? left : right) + ahead, _MM_HINT_T0);
        _mm_prefetch((v.number == 0 ? left + task.a_strip : right + task.b_strip) + ahead, _MM_HINT_T0);
        x = _mm512_permutex2var_epi32(_mm512_loadu_si512(left), row[v.value], _mm512_loadu_si512(left + task.a_strip));
        y = _mm512_permutex2var_epi32(
            _mm512_loadu_si512(right), column[v.value], _mm512_loadu_si512(right + task.b_strip));
    };
    exact_walk<block, count>(words, blocks, task.align_bits, acc, task.unsafe + vector);
    unrolled<count>([&](auto v) BITREPLAY_INLINE { Simd::store(task.acc + 16 * (vector + v.number), acc[v.value]); });
}

template <int block>
void pairs_blocks(const PairsTask& task) {
    constexpr std::int64_t together = chunk_products / block;
    for (std::int64_t first = 0; first < task.blocks; first += together) {
        const std::int64_t blocks = task.blocks - first < together ? task.blocks - first : together;
        std::int64_t v = 0;
        for (; v + 2 <= task.count; v += 2) pairs_walk<block, 2>(task, v, first, blocks);
        if (v < task.count) pairs_walk<block, 1>(task, v, first, blocks);
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
