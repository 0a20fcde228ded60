// The filter's kernels (AVX-512 with BF16 dot products). emu/FILTER.md derives the bound.
#include "emu/simd/filter.hpp"

namespace bitreplay::BITREPLAY_ISA {
namespace {

using simd::FilterTask;
using simd::LanesTask;
using simd::segment_products;

constexpr float unit_roundoff = 0x1p-24F;
constexpr float margin = 1.01F;                        // second-order terms and the roundings of the bound itself
constexpr int half_columns = simd::panel_columns / 2;  // columns of a tile of the approximation
constexpr float tiny = 1e-30F;                         // everything that underflows on either side

/// acc + a0*b0 + a1*b1 with at most two roundings, subnormals flushed.
BITREPLAY_INLINE inline void add_pairs(F& acc, I a, I b) { asm("vdpbf16ps %2, %1, %0" : "+v"(acc) : "v"(a), "v"(b)); }

BITREPLAY_INLINE inline F magnitude(F x) { return Simd::real(Simd::band(Simd::bits(x), constant(0x7FFFFFFF))); }

/// State of an approximation between segments, [rows][panel_columns] each.
struct FilterState {
    float* w;      // running value
    float* sum;    // S: sum of |w| over the blocks
    float* rest;   // the bound's other terms
    float* slack;  // how large the whole error may be
};

template <int block, int rows>
__attribute__((noinline)) void filter_segment(const FilterTask& task,
                                              const FilterState& state,
                                              std::int64_t row,
                                              int column,
                                              std::int64_t segment,
                                              std::int64_t blocks) {
    constexpr int columns = 2, units = block / 2;
    constexpr int chains = units >= 4 ? 2 : 1;
    constexpr auto R = static_cast<Size>(rows), V = static_cast<Size>(columns);
    const std::int64_t first = segment * (segment_products / 2);
    const std::uint32_t* a[R];
    unrolled<rows>([&](auto r)
                       BITREPLAY_INLINE { a[r.value] = task.a.pairs + (row + r.number) * task.a_stride + first; });
    const std::uint32_t* b = task.b.pairs + column / half_columns * task.b_half + first * half_columns;
    const std::int64_t place = row * simd::panel_columns + column;
    struct alignas(64) Saved {
        float w[R][V * 16], sum[R][V * 16], most[R][V * 16];
    } saved;
    for (int r = 0; r < rows; ++r)
        for (int v = 0; v < columns * 16; v += 16) {
            const std::int64_t at = place + r * simd::panel_columns + v;
            const F w = Simd::load(state.w + at);
            Simd::store(saved.w[r] + v, w);
            Simd::store(saved.sum[r] + v, Simd::load(state.sum + at));
            Simd::store(saved.most[r] + v, magnitude(w));
        }
    for (std::int64_t i = 0; i < blocks; ++i) {
        F chain[static_cast<Size>(chains)][R][V];
        unrolled<chains>([&](auto c) BITREPLAY_INLINE {
            unrolled<rows>([&](auto r) BITREPLAY_INLINE {
                unrolled<columns>([&](auto v)
                                      BITREPLAY_INLINE { chain[c.value][r.value][v.value] = _mm512_setzero_ps(); });
            });
        });
        for (int u = 0; u < units; u += chains)
            unrolled<chains>([&](auto c) BITREPLAY_INLINE {
                I right[V];
                unrolled<columns>([&](auto v) BITREPLAY_INLINE {
                    right[v.value] = _mm512_loadu_si512(b + (u + c.number) * half_columns + v.number * 16);
                });
                unrolled<rows>([&](auto r) BITREPLAY_INLINE {
                    const I left = _mm512_set1_epi32(static_cast<int>(a[r.value][u + c.number]));
                    unrolled<columns>([&](auto v) BITREPLAY_INLINE {
                        add_pairs(chain[c.value][r.value][v.value], left, right[v.value]);
                    });
                });
            });
        const F decay = Simd::broadcast(1.0F - unit_roundoff);
        Simd::reload(&saved);  // in memory: the chains need the registers
        unrolled<rows>([&](auto r) BITREPLAY_INLINE {
            unrolled<columns>([&](auto v) BITREPLAY_INLINE {
                F total = chain[0][r.value][v.value];
                if constexpr (chains == 2) total = _mm512_add_ps(total, chain[1][r.value][v.value]);
                constexpr int at = v.number * 16;
                const F w = _mm512_fmadd_ps(Simd::load(saved.w[r.value] + at), decay, total);
                const F size = magnitude(w);
                Simd::store(saved.w[r.value] + at, w);
                Simd::store(saved.sum[r.value] + at, _mm512_add_ps(Simd::load(saved.sum[r.value] + at), size));
                Simd::store(saved.most[r.value] + at, _mm512_max_ps(Simd::load(saved.most[r.value] + at), size));
            });
        });
        Simd::reload(&saved);
        unrolled<rows>([&](auto r) BITREPLAY_INLINE { a[r.value] += units; });
        b += units * half_columns;
    }

    for (int r = 0; r < rows; ++r) {
        const std::int64_t at_a = (row + r) * task.a_segments + segment;
        const int top = task.a.top[at_a] + task.b.top[segment];  // ep: no product of the segment has a larger exponent
        const F grown = Simd::broadcast(1.0005F);
        const I product_power = constant((top + 127) << 23);
        // 2^Es per lane, and the largest of them for the count of products that can lose bits.
        I powers[V];
        I largest = product_power;
        for (int v = 0; v < columns; ++v) {
            const I own = Simd::band(Simd::bits(_mm512_mul_ps(Simd::load(saved.most[r] + v * 16), grown)),
                                     constant(exponent_bits));
            powers[v] = Simd::max(own, product_power);
            largest = Simd::max(largest, powers[v]);
        }
        const int widest = (_mm512_reduce_max_epi32(largest) >> 23) - 127;
        const int deep = top - widest + task.align_bits;  // J: bits deeper than this, both sides together, are lost
        const std::uint16_t* const ca = task.a.deeper + at_a * simd::depth_levels;
        const std::uint16_t* const cb = task.b.deeper + segment * 2 * simd::depth_levels;
        // min over j of ca[j] + cb[J - j]: cb is stored backwards and followed by 0xFFFF, so that j > J never wins.
        const int offset = deep < 0 ? simd::depth_levels : simd::depth_levels - 1 - deep;
        const I counts = _mm512_adds_epu16(_mm512_loadu_si512(ca), _mm512_loadu_si512(cb + offset));
        const __m256i counts8 = _mm256_min_epu16(_mm512_castsi512_si256(counts), _mm512_extracti64x4_epi64(counts, 1));
        const __m128i counts4 = _mm_min_epu16(_mm256_castsi256_si128(counts8), _mm256_extracti128_si256(counts8, 1));
        const int lowest_count = _mm_extract_epi16(_mm_minpos_epu16(counts4), 0);
        const int count = lowest_count < segment_products ? lowest_count : segment_products;
        const float window = Simd::real(constant((127 - task.align_bits) << 23))[0];  // 2^-F
        const F lost = Simd::broadcast(static_cast<float>(count) * window);
        const F other = Simd::broadcast(static_cast<float>(blocks) * window);
        const F norm = Simd::broadcast(task.a.norm[at_a] * unit_roundoff);
        for (int v = 0; v < columns; ++v) {
            const std::int64_t at = place + r * simd::panel_columns + v * 16;
            const F power2 = Simd::real(powers[v]);
            F rest = Simd::load(state.rest + at);
            rest = _mm512_fmadd_ps(lost, power2, rest);
            rest = _mm512_fmadd_ps(other, Simd::real(product_power), rest);
            rest =
                _mm512_fmadd_ps(norm, Simd::load(task.b.norm + segment * simd::panel_columns + column + v * 16), rest);
            const F slack =
                _mm512_sub_ps(_mm512_mul_ps(power2, Simd::broadcast(1.9999F)), Simd::load(saved.most[r] + v * 16));
            Simd::store(state.w + at, Simd::load(saved.w[r] + v * 16));
            Simd::store(state.sum + at, Simd::load(saved.sum[r] + v * 16));
            Simd::store(state.rest + at, rest);
            Simd::store(state.slack + at, _mm512_min_ps(Simd::load(state.slack + at), slack));
        }
    }
}

template <int block>
void approximate_blocks(const FilterTask& task, const FilterState& state) {
    constexpr std::int64_t per_segment = segment_products / block;
    for (std::int64_t segment = 0; segment < task.segments; ++segment) {
        const std::int64_t left = task.blocks - segment * per_segment;
        const std::int64_t blocks = left < per_segment ? left : per_segment;
        for (int column = 0; column < simd::panel_columns; column += half_columns) {
            std::int64_t row = 0;
            for (; row + 4 <= task.rows; row += 4) filter_segment<block, 4>(task, state, row, column, segment, blocks);
            for (; row < task.rows; ++row) filter_segment<block, 1>(task, state, row, column, segment, blocks);
        }
    }
}

constexpr std::int64_t filter_rows = 32;  // rows whose state stays in the first-level cache

void approximate(const FilterTask& whole) noexcept {
    for (std::int64_t row = 0; row < whole.rows; row += filter_rows) {
        FilterTask task = whole;
        task.rows = whole.rows - row < filter_rows ? whole.rows - row : filter_rows;
        task.a.pairs += row * whole.a_stride;
        task.a.norm += row * whole.a_segments;
        task.a.top += row * whole.a_segments;
        task.a.deeper += row * whole.a_segments * simd::depth_levels;
        task.value += row * simd::panel_columns;
        task.error += row * simd::panel_columns;
        alignas(64) float sum[filter_rows * simd::panel_columns], slack[filter_rows * simd::panel_columns];
        const std::int64_t count = task.rows * simd::panel_columns;
        for (std::int64_t i = 0; i < count; i += 16) {
            Simd::store(task.value + i, _mm512_setzero_ps());
            Simd::store(task.error + i, _mm512_setzero_ps());
            Simd::store(sum + i, _mm512_setzero_ps());
            Simd::store(slack + i, Simd::real(constant(exponent_bits)));
        }
        const FilterState state{task.value, sum, task.error, slack};
        switch (task.block) {
            case 4: approximate_blocks<4>(task, state); break;
            case 8: approximate_blocks<8>(task, state); break;
            default: approximate_blocks<16>(task, state); break;
        }
        for (std::int64_t i = 0; i < count; i += 16) {
            // (1 - u) w is rounded once more: u |w|, beside the 2 u S of the blocks.
            const F w = Simd::load(task.value + i);
            const F value = _mm512_mul_ps(w, Simd::broadcast(1.0F - unit_roundoff));
            const F rounding = _mm512_fmadd_ps(Simd::load(sum + i),
                                               Simd::broadcast(2.0F * unit_roundoff),
                                               _mm512_mul_ps(magnitude(w), Simd::broadcast(unit_roundoff)));
            const F error = _mm512_fmadd_ps(
                _mm512_add_ps(rounding, Simd::load(task.error + i)), Simd::broadcast(margin), Simd::broadcast(tiny));
            const __mmask16 good = _mm512_cmp_ps_mask(error, Simd::load(slack + i), _CMP_LT_OQ);
            Simd::store(task.value + i, value);
            Simd::store(task.error + i, Simd::select(good, error, Simd::real(constant(exponent_bits))));
        }
    }
}

void merge_approximations(
    std::int64_t count, float* value, float* error, const float* more, const float* more_error) noexcept {
    for (std::int64_t i = 0; i < count; i += 16) {
        const F sum = _mm512_add_ps(Simd::load(value + i), Simd::load(more + i));
        // Both this addition and the emulated one round to nearest: u |sum| each, and the emulated sum is error away.
        const F errors = _mm512_add_ps(Simd::load(error + i), Simd::load(more_error + i));
        Simd::store(value + i, sum);
        Simd::store(error + i,
                    _mm512_mul_ps(_mm512_fmadd_ps(magnitude(sum), Simd::broadcast(2.0F * unit_roundoff), errors),
                                  Simd::broadcast(1.0001F)));
    }
}

BITREPLAY_INLINE inline I bf16_of(F x) {
    const I bits = Simd::bits(x);
    const I odd = Simd::band(Simd::template shift_right<16>(bits), constant(1));
    return Simd::template shift_right<16>(Simd::add(bits, Simd::add(odd, constant(0x7FFF))));
}

std::uint64_t decide(const float* value, const float* error, bool to_fp16, std::uint16_t* codes) noexcept {
    std::uint64_t open = 0;
    for (int i = 0; i < simd::panel_columns; i += 16) {
        const F x = Simd::load(value + i), e = Simd::load(error + i);
        const F low = _mm512_sub_round_ps(x, e, _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC);
        const F high = _mm512_add_round_ps(x, e, _MM_FROUND_TO_POS_INF | _MM_FROUND_NO_EXC);
        const auto narrow = [&](F y) BITREPLAY_INLINE {
            if (to_fp16) return _mm512_cvtps_ph(y, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
            return _mm512_cvtepi32_epi16(bf16_of(y));
        };
        const __m256i least = narrow(low), most = narrow(high);
        const auto finite = _mm512_cmp_ps_mask(e, Simd::real(constant(exponent_bits)), _CMP_LT_OQ);
        const auto equal = static_cast<unsigned>(_mm256_cmpeq_epi16_mask(least, most)) & finite;
        _mm256_storeu_si256(reinterpret_cast<__m256i*>(codes + i), least);
        open |= static_cast<std::uint64_t>(~equal & 0xFFFFU) << i;
    }
    return open;
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

/// Lanes of a block whose products are all zero.
template <int units>
__attribute__((noinline)) unsigned zero_products(const float* a, const std::uint32_t (*b)[16]) {
    unsigned out = all_lanes;
    for (int u = 0; u < units; ++u) {
        const I words = _mm512_load_si512(b[u]);
        const bool even = a[2 * u] != 0.0F, odd = a[2 * u + 1] != 0.0F;
        const std::uint32_t mask = (even ? 0x7FFFU : 0U) | (odd ? 0x7FFF0000U : 0U);
        out &= Simd::equal(Simd::band(words, constant(static_cast<std::int32_t>(mask))), constant(0));
    }
    return out;
}

template <int block>
__attribute__((noinline)) void lanes_blocks(LanesTask& task) {
    constexpr int units = block / 2, groups = simd::lane_count / 16;
    const int align = task.align_bits;
    // A zero operand counts with its partner's exponent here, at most filter_exponent - 127.
    const I lowest = constant((127 - simd::filter_exponent) << 23);
    F acc[static_cast<Size>(groups)];
    unsigned safe[static_cast<Size>(groups)];
    unrolled<groups>([&](auto g) BITREPLAY_INLINE {
        acc[g.value] = Simd::load(task.acc + g.number * 16);
        safe[g.value] = all_lanes;
    });
    alignas(64) std::uint32_t right[groups][16][16];
    for (std::int64_t unit = 0; unit < task.blocks * units; unit += 16) {
        unrolled<groups>([&](auto g) BITREPLAY_INLINE {
            I words[16];
            transpose(task.b + g.number * 16, unit, words);
            unrolled<16>([&](auto i) BITREPLAY_INLINE { _mm512_store_si512(right[g.value][i.value], words[i.value]); });
        });
        const std::int64_t rest = task.blocks * units - unit;
        for (int first = 0; first < 16 && first < rest; first += units) {
            const float* const a = task.a + 2 * (unit + first);
            const std::uint32_t* const a_fields = task.a_fields + unit + first;
            unrolled<groups>([&](auto g) BITREPLAY_INLINE {
                I fields = constant(0);  // sums of two exponent fields, 7 bits up, in 16-bit lanes
                unrolled<units>([&](auto u) BITREPLAY_INLINE {
                    const I b =
                        Simd::band(_mm512_load_si512(right[g.value][first + u.number]), constant(simd::field_mask));
                    fields = _mm512_max_epu16(
                        fields, _mm512_add_epi16(b, constant(static_cast<std::int32_t>(a_fields[u.number]))));
                });
                fields = _mm512_max_epu16(fields, Simd::template shift_right<16>(fields));
                const I products = Simd::sub(Simd::template shift_left<16>(fields), constant(127 << 23));
                const I x = Simd::max(products, Simd::band(Simd::bits(acc[g.value]), constant(exponent_bits)));
                const unsigned high = Simd::greater(x, lowest);
                unsigned nothing = 0;  // lanes whose accumulator and products are all zero: exactly +0
                if (high != all_lanes) [[unlikely]] {
                    nothing = ~high & Simd::zero(acc[g.value]) & zero_products<units>(a, right[g.value] + first);
                    safe[g.value] &= high | nothing;
                }
                const F scale = scale_of(x, align);
                I sum[2] = {Simd::truncate(Simd::mul(acc[g.value], scale)), constant(0)};
                unrolled<units>([&](auto u) BITREPLAY_INLINE {
                    const I b = _mm512_load_si512(right[g.value][first + u.number]);
                    const F even =
                        Simd::mul(Simd::real(Simd::template shift_left<16>(b)), Simd::broadcast(a[2 * u.number]));
                    const F odd = Simd::mul(Simd::real(Simd::band(b, constant(static_cast<std::int32_t>(0xFFFF0000)))),
                                            Simd::broadcast(a[2 * u.number + 1]));
                    I& part = sum[2 * u.number >= units];
                    part = Simd::add(part, Simd::truncate(Simd::mul(even, scale)));
                    part = Simd::add(part, Simd::truncate(Simd::mul(odd, scale)));
                });
                acc[g.value] = Simd::mul(rounded_sum<Result::fp32, (block >= 16)>(sum[0], sum[1]), unit_of(x, align));
                if (nothing != 0) [[unlikely]] acc[g.value] = Simd::select(nothing, Simd::broadcast(0.0F), acc[g.value]);
            });
        }
    }
    task.unsafe = 0;
    unrolled<groups>([&](auto g) BITREPLAY_INLINE {
        Simd::store(task.acc + g.number * 16, acc[g.value]);
        task.unsafe |= (~safe[g.value] & all_lanes) << (16 * g.number);
    });
}

void walk_lanes(LanesTask& task) noexcept {
    switch (task.block) {
        case 4: lanes_blocks<4>(task); break;
        case 8: lanes_blocks<8>(task); break;
        default: lanes_blocks<16>(task); break;
    }
}

constexpr simd::FilterKernels kernels{approximate, merge_approximations, decide, walk_lanes};

}  // namespace

const simd::FilterKernels* filter_row() noexcept { return &kernels; }

}  // namespace bitreplay::BITREPLAY_ISA
