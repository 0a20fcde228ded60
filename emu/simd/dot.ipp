// The exact walk, once, on a vector wrapper `Simd` (dot_<isa>.cpp). Lanes are output columns. emu/simd/EXACT.md derives
// every bound used here; the scalar definition is arch/dot.cpp.
#include "emu/simd/dot_blocks.ipp"

namespace bitreplay::BITREPLAY_ISA {
namespace {

constexpr int group_rows = 8;  // that do a block in turn

/// Fetches the next block's operands of `rows` rows and, the rows of a group together, of the columns.
template <int length, int rows>
BITREPLAY_INLINE inline void fetch_ahead(const float* a,
                                         const std::uint32_t* a_scale,
                                         std::int64_t a_stride,
                                         const float* b,
                                         const std::int8_t* b_scale,
                                         std::int64_t i) {
    unrolled<rows>([&](auto r) BITREPLAY_INLINE {
        __builtin_prefetch(a + r.number * a_stride + length);
        __builtin_prefetch(a_scale + r.number * a_stride + length);
    });
    constexpr auto share = [](int lines) { return (lines * rows + group_rows - 1) / group_rows; };
    constexpr int value_lines = share(length * simd::panel_columns / 16), scale_lines = share(length);
    for (int line = 0; line < value_lines; ++line)
        __builtin_prefetch(b + length * simd::panel_columns + (i / rows * value_lines + line) * 16);
    for (int line = 0; line < scale_lines; ++line)
        __builtin_prefetch(b_scale + length * simd::panel_columns + (i / rows * scale_lines + line) * 64);
}

/// Blocks [first, first + blocks) of rows [row, row + count) for `vectors` vectors of columns; `rows` rows (count is a
/// multiple) go together.
///
/// A block starts with its accumulator, the result of the block before. All rows do a block before the next one: what a
/// row waits for is ready when its turn comes, and the block's columns stay in the first-level cache.
template <int length, Result result, bool wide, int rows, int vectors>
__attribute__((noinline)) void walk_tile(const WalkTask& task,
                                         std::int64_t row,
                                         std::int64_t count,
                                         int column,
                                         std::int64_t first,
                                         std::int64_t blocks,
                                         float* acc,
                                         std::int64_t acc_stride) {
    constexpr auto R = static_cast<Size>(rows), V = static_cast<Size>(vectors);
    constexpr int columns = vectors * Simd::lanes;
    const WalkShape& shape = *task.shape;
    const std::int32_t align = shape.align_bits;
    [[maybe_unused]] const std::int32_t bits_of_wrapped = wrap_bits(shape);
    const std::int64_t a_stride = task.a_stride;
    const float* const a_first = task.a + row * a_stride + first;
    const std::uint32_t* const a_scale = task.a_scale + row * a_stride + first;
    const float* b = task.b + first * simd::panel_columns + column;
    const std::int8_t* b_scale = task.b_scale + first * simd::panel_columns + column;

    Simd::B relative[R];  // largest product exponent of a block, one byte per column
    const auto forget = [&]() BITREPLAY_INLINE {
        unrolled<rows>([&](auto r) BITREPLAY_INLINE { relative[r.value] = Simd::broadcast_bytes(0x80808080U); });
    };
    const auto largest = [&](const std::uint32_t* row_scale, const std::int8_t* column_scale, int k) BITREPLAY_INLINE {
        const auto eb = Simd::load_bytes(column_scale + k * simd::panel_columns);
        unrolled<rows>([&](auto r) BITREPLAY_INLINE {
            const auto ea = Simd::broadcast_bytes(row_scale[r.number * a_stride + k]);
            relative[r.value] = Simd::max_bytes(relative[r.value], Simd::add_bytes(eb, ea));
        });
    };
    forget();
    for (int k = 0; k < length; ++k) largest(a_scale, b_scale, k);

    for (std::int64_t block = 0; block < blocks; ++block) {
        for (std::int64_t i = 0; i < count; i += rows) {
            const float* const a = a_first + i * a_stride + block * length;
            float* const out = acc + i * acc_stride;
            I sum[R][V];
            F scale[R][V];
            bool safe[R];
            std::int32_t lowest_safe[R];
            Lift lift[R];
            unrolled<rows>([&](auto r) BITREPLAY_INLINE {
                const std::int64_t at = row + i + r.number;
                const std::int32_t top = task.a_top[at] + task.b_top;
                lowest_safe[r.value] = lowest_safe_exponent(top, align);
                lift[r.value] = {task.a_lift == nullptr ? 0 : task.a_lift[at], task.b_lift};
                I smallest{}, greatest{};
                unrolled<vectors>([&](auto v) BITREPLAY_INLINE {
                    const F old = Simd::load(out + r.number * acc_stride + v.number * Simd::lanes);
                    const I products =
                        Simd::add(Simd::template shift_left<23>(Simd::template widen<v.number>(relative[r.value])),
                                  constant((top + 127) << 23));
                    I x = Simd::max(products, Simd::band(Simd::bits(old), constant(exponent_bits)));
                    // A subnormal accumulator counts with the smallest normal exponent.
                    if (lift[r.value].both() != 0) [[unlikely]]
                        x = Simd::max(
                            x, Simd::select(Simd::zero(old), constant(0), constant((lift[r.value].both() + 1) << 23)));
                    smallest = v.number == 0 ? x : Simd::min(smallest, x);
                    if constexpr (result == Result::fp16) greatest = v.number == 0 ? x : Simd::max(greatest, x);
                    scale[r.value][v.value] = scale_of(x, align);
                    sum[r.value][v.value] = Simd::truncate(Simd::mul(old, scale[r.value][v.value]));
                });
                safe[r.value] = Simd::greater(smallest, constant(lowest_safe[r.value])) == all_lanes;
                if constexpr (result == Result::fp16)
                    safe[r.value] &= Simd::equal(greatest, constant(exponent_bits)) == 0;
            });

            // Beside the products the exponents of the block that is next (after the last one: of any).
            const bool wraps = i + rows == count;
            const std::int64_t step = wraps && block + 1 < blocks ? length : 0;
            const std::uint32_t* const next_a = a_scale + (wraps ? 0 : i + rows) * a_stride + block * length + step;
            const std::int8_t* const next_b = b_scale + step * simd::panel_columns;
            fetch_ahead<length, rows>(a, a_scale + i * a_stride + block * length, a_stride, b, b_scale, i);
            forget();
#pragma GCC unroll 16
            for (int k = 0; k < length; ++k) {
                F column_values[V];
                unrolled<vectors>([&](auto v) BITREPLAY_INLINE {
                    column_values[v.value] = Simd::load(b + k * simd::panel_columns + v.number * Simd::lanes);
                });
                unrolled<rows>([&](auto r) BITREPLAY_INLINE {
                    const F x = Simd::broadcast(a[r.number * a_stride + k]);
                    unrolled<vectors>([&](auto v) BITREPLAY_INLINE {
                        const F scaled = Simd::mul(Simd::mul(x, column_values[v.value]), scale[r.value][v.value]);
                        sum[r.value][v.value] = Simd::add(sum[r.value][v.value], Simd::truncate(scaled));
                        Simd::pin(sum[r.value][v.value]);
                    });
                });
                largest(next_a, next_b, k);
            }

            unrolled<rows>([&](auto r) BITREPLAY_INLINE {
                bool maybe_wrapped = false;
                if constexpr (wide) {
                    I most{};
                    unrolled<vectors>([&](auto v) BITREPLAY_INLINE {
                        const I size = Simd::absolute(sum[r.value][v.value]);  // INT_MIN stays: largest as unsigned
                        most = v.number == 0 ? size : Simd::bor(most, size);
                    });
                    maybe_wrapped = Simd::equal(Simd::band(most, constant(bits_of_wrapped)), constant(0)) != all_lanes;
                }
                float* const to = out + r.number * acc_stride;
                if (!safe[r.value] || maybe_wrapped) [[unlikely]] {
                    alignas(64) std::int32_t sums[static_cast<Size>(columns)], exponents[static_cast<Size>(columns)];
                    unrolled<vectors>([&](auto v) BITREPLAY_INLINE {
                        Simd::store(sums + v.number * Simd::lanes, sum[r.value][v.value]);
                        Simd::store(exponents + v.number * Simd::lanes,
                                    Simd::bits(scale_of(Simd::bits(scale[r.value][v.value]), align)));
                    });
                    careful_block<result, wide>(shape,
                                                length,
                                                columns,
                                                lowest_safe[r.value],
                                                lift[r.value],
                                                a + r.number * a_stride,
                                                b,
                                                exponents,
                                                sums,
                                                to);
                    return;
                }
                unrolled<vectors>([&](auto v) BITREPLAY_INLINE {
                    F value = Simd::mul(to_float<result>(sum[r.value][v.value]), inverse_of(scale[r.value][v.value]));
                    if (lift[r.value].both() != 0) [[unlikely]]
                        value = gradual(value, lift[r.value].both());
                    Simd::store(to + v.number * Simd::lanes, finished<result>(value));
                });
            });
        }
        b += length * simd::panel_columns;
        b_scale += length * simd::panel_columns;
    }
}

__attribute__((noinline)) void add_nearest(float* acc, const float* last, int columns, bool to_fp16) {
    for (int i = 0; i < columns; i += Simd::lanes) {
        const F sum = Simd::add_nearest(Simd::load(last + i), Simd::load(acc + i));
        Simd::store(acc + i, to_fp16 ? Simd::through_fp16(sum) : sum);
    }
}

template <int length, Result result, bool wide, int rows, int vectors>
void walk_rows(const WalkTask& task, std::int64_t row, std::int64_t count, int column) {
    float* const acc = task.acc + row * task.acc_stride + column;
    constexpr auto tile = walk_tile<length, result, wide, rows, vectors>;
    if (!task.shape->halves) {
        [[maybe_unused]] const TowardZero mode;
        tile(task, row, count, column, 0, task.blocks, acc, task.acc_stride);
        return;
    }
    constexpr int columns = vectors * Simd::lanes;
    for (std::int64_t i = 0; i < task.blocks; ++i) {
        alignas(64) float last[static_cast<Size>(group_rows)][static_cast<Size>(columns)] = {};
        {
            [[maybe_unused]] const TowardZero mode;
            tile(task, row, count, column, 2 * i * length, 2, last[0], columns);
        }
        [[maybe_unused]] const Nearest mode;
        for (int r = 0; r < count; ++r)
            add_nearest(acc + r * task.acc_stride, last[r], columns, result == Result::fp16);
    }
}

/// All rows of some vectors of columns: fewer vectors, more rows together.
template <int length, Result result, bool wide, int vectors>
void walk_columns(const WalkTask& task, int column) {
    constexpr int rows = most_vectors / vectors;
    for (std::int64_t row = 0; row < task.rows; row += group_rows) {
        const std::int64_t left = task.rows - row, count = left < group_rows ? left : group_rows,
                           even = count / rows * rows;
        if (even != 0) walk_rows<length, result, wide, rows, vectors>(task, row, even, column);
        if (even != count) walk_rows<length, result, wide, 1, vectors>(task, row + even, count - even, column);
    }
}

template <int length, Result result, bool wide>
void walk(const WalkTask& task) noexcept {
    for (int column = 0; column < task.columns; column += Simd::columns) {
        const int left = (task.columns - column + Simd::lanes - 1) / Simd::lanes;
        if (left > 2)
            walk_columns<length, result, wide, most_vectors>(task, column);
        else if (left == 2)
            walk_columns<length, result, wide, 2>(task, column);
        else
            walk_columns<length, result, wide, 1>(task, column);
    }
}

template <int length>
simd::WalkKernel by_result(const WalkShape& shape) noexcept {
    constexpr bool wide = length >= 16;
    if (!wide && shape.wrap_limit != 0) return nullptr;
    switch (shape.result) {
        case Result::fp32:
            return wide && shape.wrap_limit == 0 ? walk<length, Result::fp32, false> : walk<length, Result::fp32, wide>;
        case Result::e8m13: return shape.wrap_limit == 0 ? walk<length, Result::e8m13, false> : nullptr;
        case Result::fp16: return walk<length, Result::fp16, wide>;
    }
    return nullptr;
}

}  // namespace

simd::WalkKernel walk_kernel(const WalkShape& shape) noexcept {
    switch (shape.halves ? shape.block / 2 : shape.block) {
        case 4: return by_result<4>(shape);
        case 8: return by_result<8>(shape);
        case 16: return by_result<16>(shape);
        case 32: return by_result<32>(shape);
        default: return nullptr;
    }
}

}  // namespace bitreplay::BITREPLAY_ISA
