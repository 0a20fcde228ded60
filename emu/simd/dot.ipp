// The exact walk, once, on a vector wrapper `Simd` (dot_<isa>.cpp). Lanes are output columns. emu/simd/EXACT.md derives
// every bound used here; the scalar definition is arch/dot.cpp.
#include "emu/simd/dot_blocks.ipp"

namespace bitreplay::BITREPLAY_ISA {
namespace {

/// `rows` rows x `vectors` vectors of columns, `blocks` blocks of `length` products each.
template <int length, Result result, bool wide, int rows, int vectors>
__attribute__((noinline)) void walk_tile(const WalkTask& task,
                                         std::int64_t row,
                                         int column,
                                         std::int64_t first,
                                         std::int64_t blocks,
                                         float* acc,
                                         std::int64_t acc_stride) {
    constexpr auto R = static_cast<Size>(rows), V = static_cast<Size>(vectors);
    constexpr int columns = vectors * Simd::lanes;
    const WalkShape& shape = *task.shape;
    const std::int32_t align = shape.align_bits;
    const float* a[R];
    const std::uint32_t* a_scale[R];
    unrolled<rows>([&](auto r) BITREPLAY_INLINE {
        a[r.value] = task.a + (row + r.number) * task.a_stride + first;
        a_scale[r.value] = task.a_scale + (row + r.number) * task.a_stride + first;
    });
    const float* b = task.b + first * simd::panel_columns + column;
    const std::int8_t* b_scale = task.b_scale + first * simd::panel_columns + column;
    // The largest power of two below the limit and all bits above it.
    [[maybe_unused]] const std::int32_t wrap_bits =
        shape.wrap_limit == 0 ? 0 : -(1 << (31 - __builtin_clz(shape.wrap_limit)));

    // Constants and the block's exponents live in memory between uses: the loop over products needs every register.
    struct alignas(64) Saved {
        std::int32_t exponent[R][static_cast<Size>(columns)];
        std::int32_t base[R], lowest_safe[R];
        Lift lift[R];
    } saved;
    unrolled<rows>([&](auto r) BITREPLAY_INLINE {
        const std::int32_t top = task.a_top[row + r.number] + task.b_top;
        saved.base[r.value] = (top + 127) << 23;
        saved.lowest_safe[r.value] = lowest_safe_exponent(top, align);
        saved.lift[r.value] = {task.a_lift == nullptr ? 0 : task.a_lift[row + r.number], task.b_lift};
    });

    Simd::B relative[R];  // largest product exponent of the block, one byte per column
    const auto largest = [&](int k) BITREPLAY_INLINE {
        const auto eb = Simd::load_bytes(b_scale + k * simd::panel_columns);
        unrolled<rows>([&](auto r) BITREPLAY_INLINE {
            relative[r.value] =
                Simd::max_bytes(relative[r.value], Simd::add_bytes(eb, Simd::broadcast_bytes(a_scale[r.value][k])));
        });
    };
    unrolled<rows>([&](auto r) BITREPLAY_INLINE { relative[r.value] = Simd::broadcast_bytes(0x80808080U); });
    for (int k = 0; k < length; ++k) largest(k);

    for (std::int64_t block = 0; block < blocks; ++block) {
        I sum[R][V];
        F scale[R][V];
        bool safe[R];
        Simd::reload(&saved);
        unrolled<rows>([&](auto r) BITREPLAY_INLINE {
            I smallest{}, greatest{};
            unrolled<vectors>([&](auto v) BITREPLAY_INLINE {
                const F old = Simd::load(acc + r.number * acc_stride + v.number * Simd::lanes);
                const I products =
                    Simd::add(Simd::template shift_left<23>(Simd::template widen<v.number>(relative[r.value])),
                              constant(saved.base[r.value]));
                I x = Simd::max(products, Simd::band(Simd::bits(old), constant(exponent_bits)));
                if (saved.lift[r.value].both() !=
                    0)  // a subnormal accumulator counts with the smallest normal exponent
                    x = Simd::max(
                        x,
                        Simd::select(Simd::zero(old), constant(0), constant((saved.lift[r.value].both() + 1) << 23)));
                smallest = v.number == 0 ? x : Simd::min(smallest, x);
                if constexpr (result == Result::fp16) greatest = v.number == 0 ? x : Simd::max(greatest, x);
                Simd::store(saved.exponent[r.value] + v.number * Simd::lanes, x);
                scale[r.value][v.value] = scale_of(x, align);
                sum[r.value][v.value] = Simd::truncate(Simd::mul(old, scale[r.value][v.value]));
            });
            safe[r.value] = Simd::greater(smallest, constant(saved.lowest_safe[r.value])) == all_lanes;
            if constexpr (result == Result::fp16) safe[r.value] &= Simd::equal(greatest, constant(exponent_bits)) == 0;
        });

        if (block + 1 < blocks) {  // the next block's exponents, beside this block's products
            b_scale += length * simd::panel_columns;
            unrolled<rows>([&](auto r) BITREPLAY_INLINE { a_scale[r.value] += length; });
        }
        unrolled<rows>([&](auto r) BITREPLAY_INLINE { relative[r.value] = Simd::broadcast_bytes(0x80808080U); });
        for (int k = 0; k < length; ++k) {
            F column_values[V];
            unrolled<vectors>([&](auto v) BITREPLAY_INLINE {
                column_values[v.value] = Simd::load(b + k * simd::panel_columns + v.number * Simd::lanes);
            });
            unrolled<rows>([&](auto r) BITREPLAY_INLINE {
                const F x = Simd::broadcast(a[r.value][k]);
                unrolled<vectors>([&](auto v) BITREPLAY_INLINE {
                    const F scaled = Simd::mul(Simd::mul(x, column_values[v.value]), scale[r.value][v.value]);
                    sum[r.value][v.value] = Simd::add(sum[r.value][v.value], Simd::truncate(scaled));
                    Simd::pin(sum[r.value][v.value]);
                });
            });
            largest(k);
        }
        Simd::reload(&saved);

        unrolled<rows>([&](auto r) BITREPLAY_INLINE {
            float* const out = acc + r.number * acc_stride;
            bool maybe_wrapped = false;
            if constexpr (wide) {
                I most{};
                unrolled<vectors>([&](auto v) BITREPLAY_INLINE {
                    const I size = Simd::absolute(sum[r.value][v.value]);  // INT_MIN stays: largest as unsigned
                    most = v.number == 0 ? size : Simd::bor(most, size);
                });
                maybe_wrapped = Simd::equal(Simd::band(most, constant(wrap_bits)), constant(0)) != all_lanes;
            }
            if (!safe[r.value] || maybe_wrapped) [[unlikely]] {
                alignas(64) std::int32_t sums[static_cast<Size>(columns)];
                unrolled<vectors>([&](auto v) BITREPLAY_INLINE {
                    Simd::store(sums + v.number * Simd::lanes, sum[r.value][v.value]);
                });
                careful_block<result, wide>(shape,
                                            length,
                                            columns,
                                            saved.lowest_safe[r.value],
                                            saved.lift[r.value],
                                            a[r.value],
                                            b,
                                            saved.exponent[r.value],
                                            sums,
                                            out);
                return;
            }
            unrolled<vectors>([&](auto v) BITREPLAY_INLINE {
                const I x = Simd::load(saved.exponent[r.value] + v.number * Simd::lanes);
                F value = Simd::mul(to_float<result>(sum[r.value][v.value]), unit_of(x, align));
                if (saved.lift[r.value].both() != 0) value = gradual(value, saved.lift[r.value].both());
                Simd::store(out + v.number * Simd::lanes, finished<result>(value));
            });
        });
        b += length * simd::panel_columns;
        unrolled<rows>([&](auto r) BITREPLAY_INLINE { a[r.value] += length; });
    }
}

__attribute__((noinline)) void add_nearest(float* acc, const float* last, int columns, bool to_fp16) {
    for (int i = 0; i < columns; i += Simd::lanes) {
        const F sum = Simd::add_nearest(Simd::load(last + i), Simd::load(acc + i));
        Simd::store(acc + i, to_fp16 ? Simd::through_fp16(sum) : sum);
    }
}

template <int length, Result result, bool wide, int rows, int vectors>
void walk_rows(const WalkTask& task, std::int64_t row, int column) {
    float* const acc = task.acc + row * task.acc_stride + column;
    if (!task.shape->halves) {
        [[maybe_unused]] const TowardZero mode;
        walk_tile<length, result, wide, rows, vectors>(task, row, column, 0, task.blocks, acc, task.acc_stride);
        return;
    }
    constexpr int columns = vectors * Simd::lanes;
    for (std::int64_t i = 0; i < task.blocks; ++i) {
        alignas(64) float last[static_cast<Size>(rows)][static_cast<Size>(columns)] = {};
        {
            [[maybe_unused]] const TowardZero mode;
            walk_tile<length, result, wide, rows, vectors>(task, row, column, 2 * i * length, 2, last[0], columns);
        }
        [[maybe_unused]] const Nearest mode;
        for (int r = 0; r < rows; ++r) add_nearest(acc + r * task.acc_stride, last[r], columns, result == Result::fp16);
    }
}

/// All rows of some vectors of columns: fewer vectors, more rows together.
template <int length, Result result, bool wide, int vectors>
void walk_columns(const WalkTask& task, int column) {
    constexpr int rows = Simd::rows * most_vectors / vectors;
    std::int64_t row = 0;
    for (; row + rows <= task.rows; row += rows) walk_rows<length, result, wide, rows, vectors>(task, row, column);
    if constexpr (rows > 1)
        for (; row < task.rows; ++row) walk_rows<length, result, wide, 1, vectors>(task, row, column);
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
