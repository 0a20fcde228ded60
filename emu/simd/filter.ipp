// The filter's kernels (AVX-512 with BF16 dot products). emu/FILTER.md derives the bound.
#include "emu/simd/filter.hpp"

namespace bitreplay::BITREPLAY_ISA {
namespace {

using simd::FilterTask;
using simd::segment_products;

constexpr float unit_roundoff = 0x1p-24F;
constexpr std::int32_t nearly = 1 << 17;  // 2^-6 of a binade: see binade()
constexpr float slack_share = 0x1p-6F;    // of the largest binade that the whole error may take: condition C
constexpr int strip = simd::strip_columns;
constexpr float tiny = 1e-30F;  // everything that underflows on either side

/// acc + a0*b0 + a1*b1 with at most two roundings, subnormals flushed.
BITREPLAY_INLINE inline void add_pairs(F& acc, I a, I b) { asm("vdpbf16ps %2, %1, %0" : "+v"(acc) : "v"(b), "v"(a)); }

BITREPLAY_INLINE inline F magnitude(F x) { return Simd::real(Simd::band(Simd::bits(x), constant(0x7FFFFFFF))); }

/// 2^e' as bits: the binade of a finite x, the next one already where x is within 2^-6 of it.
BITREPLAY_INLINE inline I binade(F x) {
    return Simd::band(Simd::add(Simd::bits(x), constant(nearly)), constant(exponent_bits));
}

/// Second-order terms and the roundings of the bound itself, for walks of so many blocks (at most 2^14).
float margin(std::int64_t blocks) { return 1.005F / (1.0F - static_cast<float>(blocks) * 0x1.1p-16F); }

/// Blocks that S counts with the largest binade among them.
constexpr int group_blocks(int block) { return 64 / block; }

/// State of an approximation between segments, [rows][panel_columns] each.
struct FilterState {
    float* w;      // running value
    float* sum;    // S / group_blocks: sum of the groups' largest 2^e'
    float* most;   // the largest 2^e' of this segment so far, its start included
    float* rest;   // the bound's other terms, see segment_bound()
    float* least;  // the smallest 2^Es

    FilterState at(std::int64_t i) const { return {w + i, sum + i, most + i, rest + i, least + i}; }
};

template <Size tile>
BITREPLAY_INLINE inline void add_chains(F (&to)[tile], const F (&from)[tile]) {
    unrolled<static_cast<int>(tile)>([&](auto t)
                                         BITREPLAY_INLINE { to[t.value] = _mm512_add_ps(to[t.value], from[t.value]); });
}

constexpr std::int64_t stretch_products = 256;  // of two strips: half of the first-level cache, with those to come
static_assert(segment_products % stretch_products == 0);
constexpr std::int64_t filter_rows = 128;  // rows whose state is kept
constexpr int tile_rows = 2, tile_strips = 2;

/// The sums of a block, from zero: sum[r * strips + v] of row r and strip v.
template <int block, int rows, int strips>
BITREPLAY_INLINE inline void block_sums(const std::uint32_t* a,
                                        const std::uint32_t* b,
                                        std::int64_t b_strip,
                                        F (&out)[static_cast<Size>(rows * strips)]) {
    constexpr int chains = simd::filter_chains(block);
    F chain[static_cast<Size>(chains)][static_cast<Size>(rows * strips)];
    unrolled<block / 2>([&](auto u) BITREPLAY_INLINE {
        constexpr auto c = static_cast<Size>(u.number % chains);
        I right[static_cast<Size>(strips)];
        unrolled<strips>([&](auto v) BITREPLAY_INLINE {
            right[v.value] = _mm512_loadu_si512(b + v.number * b_strip + u.number * strip);
            Simd::pin(right[v.value]);
        });
        unrolled<rows>([&](auto r) BITREPLAY_INLINE {
            I left = constant(static_cast<std::int32_t>(a[u.number * simd::strip_rows + r.number]));
            Simd::pin(left);
            unrolled<strips>([&](auto v) BITREPLAY_INLINE {
                F& to = chain[c][r.value * strips + v.value];
                if constexpr (u.number < chains) to = _mm512_setzero_ps();
                add_pairs(to, left, right[v.value]);
            });
        });
    });
    if constexpr (chains >= 2) add_chains(chain[0], chain[1]);
    if constexpr (chains == 4) {
        add_chains(chain[2], chain[3]);
        add_chains(chain[0], chain[2]);
    }
    unrolled<rows * strips>([&](auto t) BITREPLAY_INLINE { out[t.value] = chain[0][t.value]; });
}

/// Blocks of `rows` rows and two strips; a, b: their first words; state: of the first row and column.
template <int block, int rows>
BITREPLAY_INLINE inline void filter_tile(const std::uint32_t* a,
                                         const std::uint32_t* b,
                                         std::int64_t b_strip,
                                         std::int64_t blocks,
                                         const FilterState& state) {
    constexpr int units = block / 2, group = group_blocks(block), tile = rows * tile_strips;
    constexpr auto T = static_cast<Size>(tile);
    const auto place = [](auto t) BITREPLAY_INLINE {
        return t.number / tile_strips * simd::panel_columns + t.number % tile_strips * strip;
    };
    F w[T];
    unrolled<tile>([&](auto t) BITREPLAY_INLINE { w[t.value] = Simd::load(state.w + place(t)); });
    const auto block_of = [&](F(&most)[T], std::int64_t i) BITREPLAY_INLINE {
        F sum[T];
        block_sums<block, rows, tile_strips>(a + i * units * simd::strip_rows, b + i * units * strip, b_strip, sum);
        unrolled<tile>([&](auto t) BITREPLAY_INLINE {
            w[t.value] = _mm512_add_round_ps(w[t.value], sum[t.value], toward_zero);
            most[t.value] = _mm512_range_ps(most[t.value], w[t.value], 11);  // the larger magnitude
        });
    };
    for (std::int64_t left = blocks; left > 0; left -= group) {
        F most[T];  // of the group
        unrolled<tile>([&](auto t) BITREPLAY_INLINE { most[t.value] = _mm512_setzero_ps(); });
        if (left >= group)
            unrolled<group>([&](auto i) BITREPLAY_INLINE { block_of(most, i.number); });
        else
            for (std::int64_t i = 0; i < left; ++i) block_of(most, i);
        unrolled<tile>([&](auto t) BITREPLAY_INLINE {
            const I size = binade(most[t.value]);
            float* const sum = state.sum + place(t);
            float* const largest = state.most + place(t);
            Simd::store(sum, _mm512_add_ps(Simd::load(sum), Simd::real(size)));
            Simd::store(largest, Simd::real(Simd::max(Simd::bits(Simd::load(largest)), size)));
        });
        a += group * units * simd::strip_rows;
        b += group * units * strip;
    }
    unrolled<tile>([&](auto t) BITREPLAY_INLINE { Simd::store(state.w + place(t), w[t.value]); });
}

/// Blocks [first, first + count) of all rows and of the two strips from `column` on; next: words of the strips that
/// follow, to be fetched meanwhile.
template <int block>
__attribute__((noinline)) void filter_stretch(const FilterTask& task,
                                              const FilterState& state,
                                              int column,
                                              std::int64_t first,
                                              std::int64_t count,
                                              const std::uint32_t* next) {
    constexpr int units = block / 2;
    const std::int64_t b_strip = task.b_strip, lines = count * units;
    const std::uint32_t* const b = task.b.pairs + column / strip * b_strip + first * units * strip;
    const auto tile = [&](auto rows, std::int64_t row) BITREPLAY_INLINE {
        for (std::int64_t line = lines * row / task.rows; line < lines * (row + rows.number) / task.rows; ++line)
            for (int v = 0; v < tile_strips; ++v) _mm_prefetch(next + v * b_strip + line * 16, _MM_HINT_T0);
        // The rows belong to one strip: their words lie beside each other.
        const std::uint32_t* const a = task.a.pairs +
                                       (row / simd::strip_rows * task.a_units + first * units) * simd::strip_rows +
                                       row % simd::strip_rows;
        filter_tile<block, rows.number>(a, b, b_strip, count, state.at(row * simd::panel_columns + column));
    };
    std::int64_t row = 0;
    for (; row + tile_rows <= task.rows; row += tile_rows) tile(Index<tile_rows>{}, row);
    for (; row < task.rows; ++row) tile(Index<1>{}, row);
}

/// A quarter of the last place of a window whose largest exponent is 0.
float quarter_unit(int align_bits) {
    return __builtin_bit_cast(float, static_cast<std::uint32_t>(127 - align_bits - 2) << 23);
}

/// What the segment adds to the bound of all rows, in units of 2^(-F - 2): the terms beside 2 u S; and condition C.
void segment_bound(const FilterTask& task, const FilterState& state, std::int64_t segment, std::int64_t blocks) {
    const std::uint16_t* const b_table = task.b.deeper + segment * simd::depth_levels;
    const I b_deeper = _mm512_loadu_si512(b_table);
    const auto words = [](int x) { return _mm512_set1_epi16(static_cast<short>(x)); };
    const auto sum = [](I x, I y) BITREPLAY_INLINE { return _mm512_add_epi16(x, y); };
    for (std::int64_t row = 0; row < task.rows; ++row) {
        const std::int64_t at_a = row * task.a_segments + segment;
        const std::uint16_t* const a_table = task.a.deeper + at_a * simd::depth_levels;
        // All products are zero: no sum changes and nothing is truncated.
        if (a_table[0] == 0 || b_table[0] == 0) continue;
        const I a_deeper = _mm512_loadu_si512(a_table);
        const int top = task.a.top[at_a] + task.b.top[segment];  // ep: no product of the segment has a larger exponent
        // Below 2^-126: 0, what is lost is in `tiny`.
        const I product_power = constant((top > -127 ? top + 127 : 0) << 23);
        const F norm = Simd::broadcast(task.a.norm[at_a] * (unit_roundoff / quarter_unit(task.align_bits)));
        const F other = Simd::mul(Simd::broadcast(4.0F * static_cast<float>(blocks)), Simd::real(product_power));
        const I middle = words(task.a.middle[at_a] - task.b.middle[segment]);
        const I everything = words(4 * (a_table[0] < b_table[0] ? a_table[0] : b_table[0]));
        for (int column = 0; column < simd::panel_columns; column += 32) {
            const std::int64_t at = row * simd::panel_columns + column;
            I power[2], deep[2];  // 2^Es; J: bits deeper than this, both sides together, are lost
            unrolled<2>([&](auto v) BITREPLAY_INLINE {
                power[v.value] = Simd::max(Simd::bits(Simd::load(state.most + at + 16 * v.number)), product_power);
                deep[v.value] =
                    Simd::sub(constant(top + 127 + task.align_bits), Simd::template shift_right<23>(power[v.value]));
            });
            // 16-bit lanes. n(J + i) <= #{r_a > j} + #{r_b > J + i - j} for every j: the better of two j near the best,
            // `split` and the next. Entry 0 of a table counts everything, entry i what is deeper than i - 1. Where
            // J >= 0, all indices are those of entries: -1 <= split <= J, and what reads an earlier entry than its own
            // counts no fewer.
            const I both = _mm512_packs_epi32(deep[0], deep[1]);
            const I half = _mm512_min_epi16(_mm512_srai_epi16(sum(both, middle), 1), both);
            const I split = _mm512_max_epi16(_mm512_min_epi16(half, words(simd::depth_levels - 3)), words(-1));
            const I rest = _mm512_min_epi16(_mm512_sub_epi16(both, split), words(simd::depth_levels - 4));
            const I a0 = _mm512_permutexvar_epi16(sum(split, words(1)), a_deeper),
                    a1 = _mm512_permutexvar_epi16(sum(split, words(2)), a_deeper),
                    b0 = _mm512_permutexvar_epi16(rest, b_deeper),
                    b1 = _mm512_permutexvar_epi16(sum(rest, words(1)), b_deeper),
                    b2 = _mm512_permutexvar_epi16(sum(rest, words(2)), b_deeper),
                    b3 = _mm512_permutexvar_epi16(sum(rest, words(3)), b_deeper);
            const I lost = _mm512_min_epu16(sum(a0, b1), sum(a1, b0)),
                    deeper1 = _mm512_min_epu16(sum(a0, b2), sum(a1, b1)),
                    deeper2 = _mm512_min_epu16(sum(a0, b3), sum(a1, b2));
            // In quarters of 2^(Es - F): 2 n(J) + n(J + 1) + n(J + 2).
            const I quarters = _mm512_mask_mov_epi16(
                sum(sum(lost, lost), sum(deeper1, deeper2)), _mm512_cmplt_epi16_mask(both, constant(0)), everything);
            const I lanes[2] = {_mm512_unpacklo_epi16(quarters, constant(0)),
                                _mm512_unpackhi_epi16(quarters, constant(0))};
            unrolled<2>([&](auto v) BITREPLAY_INLINE {
                const std::int64_t to = at + 16 * v.number;
                const F largest = Simd::real(power[v.value]);
                const F norm_b = Simd::load(task.b.norm + segment * simd::panel_columns + column + 16 * v.number);
                const F more =
                    _mm512_fmadd_ps(_mm512_cvtepi32_ps(lanes[v.value]), largest, _mm512_fmadd_ps(norm, norm_b, other));
                Simd::store(state.rest + to, _mm512_add_ps(Simd::load(state.rest + to), more));
                Simd::store(state.least + to, _mm512_min_ps(Simd::load(state.least + to), largest));
                Simd::store(state.most + to,
                            Simd::real(binade(Simd::load(state.w + to))));  // where the next one starts
            });
        }
    }
}

template <int block>
void approximate_blocks(const FilterTask& task, const FilterState& state) {
    constexpr std::int64_t per_segment = segment_products / block, stretch = stretch_products / block;
    for (std::int64_t segment = 0; segment < task.segments; ++segment) {
        const std::int64_t begin = segment * per_segment, left = task.blocks - begin,
                           end = begin + (left < per_segment ? left : per_segment);
        for (std::int64_t first = begin; first < end; first += stretch) {
            const std::int64_t count = end - first < stretch ? end - first : stretch;
            for (int column = 0; column < simd::panel_columns; column += tile_strips * strip) {
                const bool last = column + tile_strips * strip == simd::panel_columns;
                const std::uint32_t* const next = task.b.pairs +
                                                  (last ? 0 : column / strip + tile_strips) * task.b_strip +
                                                  (last ? first + stretch : first) * (block / 2) * strip;
                filter_stretch<block>(task, state, column, first, count, next);
            }
        }
        segment_bound(task, state, segment, end - begin);
    }
}

void approximate(const FilterTask& whole) noexcept {
    for (std::int64_t row = 0; row < whole.rows; row += filter_rows) {
        FilterTask task = whole;
        task.rows = whole.rows - row < filter_rows ? whole.rows - row : filter_rows;
        task.a.pairs += row * whole.a_units;
        task.a.norm += row * whole.a_segments;
        task.a.top += row * whole.a_segments;
        task.a.middle += row * whole.a_segments;
        task.a.deeper += row * whole.a_segments * simd::depth_levels;
        task.value += row * simd::panel_columns;
        task.error += row * simd::panel_columns;
        constexpr std::int64_t size = filter_rows * simd::panel_columns;
        alignas(64) float sum[size], least[size], most[size];
        const std::int64_t count = task.rows * simd::panel_columns;
        for (std::int64_t i = 0; i < count; i += 16) {
            Simd::store(task.value + i, _mm512_setzero_ps());
            Simd::store(task.error + i, _mm512_setzero_ps());
            Simd::store(sum + i, _mm512_setzero_ps());
            Simd::store(most + i, _mm512_setzero_ps());
            Simd::store(least + i, Simd::real(constant(exponent_bits)));
        }
        const FilterState state{task.value, sum, most, task.error, least};
        switch (task.block) {
            case 4: approximate_blocks<4>(task, state); break;
            case 8: approximate_blocks<8>(task, state); break;
            default: approximate_blocks<16>(task, state); break;
        }
        const F factor = Simd::broadcast(margin(task.blocks));
        const F unit = Simd::broadcast(2.0F * unit_roundoff * static_cast<float>(group_blocks(task.block)));
        const F quarter = Simd::broadcast(quarter_unit(task.align_bits));
        for (std::int64_t i = 0; i < count; i += 16) {
            const F all = _mm512_fmadd_ps(Simd::load(sum + i), unit, Simd::mul(Simd::load(task.error + i), quarter));
            const F error = _mm512_fmadd_ps(all, factor, Simd::broadcast(tiny));
            const F slack = Simd::mul(Simd::load(least + i), Simd::broadcast(slack_share));
            const __mmask16 good = _mm512_cmp_ps_mask(error, slack, _CMP_LT_OQ);
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

constexpr simd::FilterKernels kernels{
    approximate, merge_approximations, decide, walk_lanes, walk_pairs, interleave, describe};

}  // namespace

const simd::FilterKernels* filter_row() noexcept { return &kernels; }

}  // namespace bitreplay::BITREPLAY_ISA
