#include "emu/gemm_pack.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>

#include "emu/parallel.hpp"
#include "emu/simd/pack.hpp"
#include "formats/convert.hpp"

namespace bitreplay {
namespace {

constexpr std::int32_t no_exponent = -100000;  // of zero: below every clamp

/// A vector of operands as fp32 patterns and the exponents of the unit's format.
struct Decoded {
    std::vector<std::uint32_t> codes, values;
    std::vector<std::int32_t> exponents;
    std::int32_t top = 0;
    bool special = false;
};

/// Exact fp32 pattern and exponent of every code of a format of at most 8 bits, or of the code's magnitude.
struct Entry {
    std::uint32_t value;
    std::int32_t exponent;
    bool special;
};

Entry entry(const Format& stored, const Format& unit, std::uint32_t code) noexcept {
    const Operand x = decode_operand(stored, unit, code);
    if (x.kind == Kind::nan || x.kind == Kind::infinity) return {0, no_exponent, true};
    const auto value = static_cast<std::uint32_t>(convert(stored, fp32, code));
    return {value, x.kind == Kind::zero ? no_exponent : x.exponent, false};
}

class Decoder {
public:
    Decoder(const Format& stored, const Format& unit) : stored_(stored), unit_(unit) {
        if (stored_.storage_bits() > 8) return;
        table_.reserve(256);
        for (std::uint32_t code = 0; code < 256; ++code)
            table_.push_back(entry(stored_, unit_, code & ((1U << stored_.storage_bits()) - 1)));
    }

    void operator()(const Codes& source, std::int64_t vector, Decoded& out) const {
        const auto depth = static_cast<std::size_t>(source.depth);
        out.codes.resize(depth);
        out.values.resize(depth);
        out.exponents.resize(depth);
        read(source, vector, out.codes);
        // Fields of one wide format let the compiler vectorise the common cases.
        bool special = false;
        std::int32_t top = no_exponent;
        if (stored_ == unit_ && (stored_ == bf16 || stored_ == tf32)) {
            const int shift = stored_ == bf16 ? 16 : 0;
            const std::uint32_t mask = stored_ == bf16 ? 0xFFFFFFFFU : 0xFFFFE000U;
            std::uint32_t largest = 0;
            for (std::size_t k = 0; k < depth; ++k) {
                const std::uint32_t value = (out.codes[k] << shift) & mask;
                const auto field = static_cast<std::int32_t>((value >> 23) & 0xFF);
                const bool zero = (value << 1) == 0;
                out.values[k] = value;
                out.exponents[k] = zero ? no_exponent : (field == 0 ? 1 : field) - 127;
                largest = std::max(largest, value & 0x7FFFFFFFU);
                top = std::max(top, out.exponents[k]);
            }
            special = largest >= 0x7F800000U;
        } else if (stored_ == unit_ && stored_ == fp16) {
            std::uint32_t largest = 0;
            for (std::size_t k = 0; k < depth; ++k) {
                const std::uint32_t magnitude = out.codes[k] & 0x7FFFU, sign = (out.codes[k] & 0x8000U) << 16;
                const bool normal = magnitude >= 0x400U;
                const std::uint32_t value =
                    normal ? (magnitude << 13) + (112U << 23) : small_half()[magnitude & 0x3FFU];
                out.values[k] = value | sign;
                out.exponents[k] = magnitude == 0 ? no_exponent
                                   : normal       ? static_cast<std::int32_t>(magnitude >> 10) - 15
                                                  : -14;
                largest = std::max(largest, magnitude);
                top = std::max(top, out.exponents[k]);
            }
            special = largest >= 0x7C00U;
        } else {
            for (std::size_t k = 0; k < depth; ++k) {
                const Entry e = table_.empty() ? entry(stored_, unit_, out.codes[k]) : table_[out.codes[k] & 0xFF];
                out.values[k] = e.value;
                out.exponents[k] = e.exponent;
                special |= e.special;
                top = std::max(top, e.exponent);
            }
        }
        if (special) {  // never computed; zeros keep the neighbours' ranges narrow
            std::fill(out.values.begin(), out.values.end(), 0U);
            std::fill(out.exponents.begin(), out.exponents.end(), no_exponent);
            top = no_exponent;
        }
        out.special = special;
        out.top = top == no_exponent ? unit_.min_exponent() : top;
    }

private:
    static const std::array<std::uint32_t, 1024>& small_half() {
        static const auto table = [] {
            std::array<std::uint32_t, 1024> out{};
            for (std::uint32_t code = 0; code < 1024; ++code)
                out[code] = static_cast<std::uint32_t>(convert(fp16, fp32, code));
            return out;
        }();
        return table;
    }

    template <class Code>
    static void read_as(const std::byte* at, std::int64_t stride, std::span<std::uint32_t> out) {
        for (std::size_t k = 0; k < out.size(); ++k) {
            Code code;
            std::memcpy(&code,
                        at + static_cast<std::int64_t>(k) * stride * static_cast<std::int64_t>(sizeof code),
                        sizeof code);
            out[k] = code;
        }
    }
    static void read(const Codes& source, std::int64_t vector, std::span<std::uint32_t> out) {
        const int bytes = storage_bytes(source.format);
        const std::byte* at = source.data + vector * source.stride * bytes;
        const std::int64_t stride = source.depth_stride;
        if (bytes == 1) return read_as<std::uint8_t>(at, stride, out);
        if (bytes == 2 && stride == 1) return read_as<std::uint16_t>(at, 1, out);
        if (bytes == 2) return read_as<std::uint16_t>(at, stride, out);
        read_as<std::uint32_t>(at, stride, out);
    }

    const Format stored_, unit_;
    std::vector<Entry> table_;
};

/// WalkTask's lift of a vector or panel.
std::int32_t lift_for(std::int32_t top, std::int32_t most) noexcept {
    return top < simd::lifted_below ? std::min(-top, most) : 0;
}

/// An fp32 pattern times 2^lift, exact for what lift_for raises.
float lifted(std::uint32_t pattern, std::int32_t lift) noexcept {
    const float value = std::bit_cast<float>(pattern);
    return lift == 0 ? value : value * std::bit_cast<float>((127U + static_cast<std::uint32_t>(lift)) << 23);
}

std::int32_t relative(std::int32_t exponent, std::int32_t top) noexcept {
    return std::max(exponent - top, simd::exponent_floor);
}

/// The kernels that pack such operands, or nullptr.
const simd::PackKernels* kernels_for(const Codes& codes, const Format& unit, const WalkLayout& layout) noexcept {
    const bool plain = codes.format == bf16 && unit == bf16 && codes.depth_stride == 1 && layout.identity;
    return plain ? simd::pack_kernels() : nullptr;
}

const std::uint16_t* bf16_codes(const Codes& codes, std::int64_t vector) noexcept {
    return reinterpret_cast<const std::uint16_t*>(codes.data) + vector * codes.stride;
}

/// A panel of bf16 vectors by the kernels: its largest exponent, or nothing where the panel is to be raised. `special`:
/// [vectors], whether one holds a NaN or an infinity.
std::optional<std::int32_t> pack_bf16(const simd::PackKernels& kernels,
                                      const Codes& codes,
                                      std::span<const std::int64_t> vectors,
                                      std::int32_t most_lift,
                                      float* values,
                                      std::int8_t* scale,
                                      std::uint8_t* special) {
    static thread_local std::vector<std::uint16_t> zeros;  // in place of special vectors
    const auto depth = static_cast<std::size_t>(codes.depth);
    if (zeros.size() < depth) zeros.resize(depth);
    const std::uint16_t* columns[simd::panel_columns];
    int field = 1;
    for (std::size_t j = 0; j < vectors.size(); ++j) {
        columns[j] = bf16_codes(codes, vectors[j]);
        const int largest = kernels.largest(columns[j], codes.depth) >> bf16.fraction_bits;
        special[j] = largest == 255 ? 1 : 0;
        if (largest == 255)
            columns[j] = zeros.data();
        else
            field = std::max(field, largest);
    }
    const std::int32_t top = field - bf16.bias();
    if (lift_for(top, most_lift) != 0) return std::nullopt;
    const int filled = simd::columns_read(static_cast<int>(vectors.size()));
    std::fill(columns + vectors.size(), columns + filled, columns[vectors.size() - 1]);
    for (int j = 0; j < filled; j += 16) kernels.columns(columns + j, codes.depth, top, values + j, scale + j);
    return top;
}

}  // namespace

std::uint32_t Codes::at(std::int64_t vector, std::int64_t k) const noexcept {
    std::uint32_t code = 0;
    const int bytes = storage_bytes(format);
    std::memcpy(&code, data + (vector * stride + k * depth_stride) * bytes, static_cast<std::size_t>(bytes));
    return code;
}

Codes rows_of(const Tensor& tensor) {
    return {tensor.bytes().data(), tensor.format(), tensor.rows(), tensor.cols(), tensor.cols(), 1};
}

PackedRows::PackedRows(const Codes& codes,
                       const Format& unit,
                       const WalkLayout& layout,
                       std::span<const std::int64_t> vectors,
                       std::int32_t most_lift)
    : depth_(std::ssize(layout.source)),
      values_(vectors.size() * layout.source.size()),
      scale_(values_.size()),
      top_(vectors.size()),
      lift_(vectors.size()),
      special_(vectors.size()) {
    const simd::PackKernels* const kernels = kernels_for(codes, unit, layout);
    const Decoder decode(codes.format, unit);
    parallel_for(std::ssize(vectors), 16, [&](std::int64_t begin, std::int64_t end) {
        Decoded row;
        for (std::int64_t i = begin; i < end; ++i) {
            if (kernels != nullptr) {
                const std::uint16_t* const source = bf16_codes(codes, vectors[static_cast<std::size_t>(i)]);
                const int field = std::max(kernels->largest(source, depth_) >> bf16.fraction_bits, 1);
                const std::int32_t top = field - bf16.bias();
                if (field != 255 && lift_for(top, most_lift) == 0) {
                    top_[static_cast<std::size_t>(i)] = top;
                    kernels->row(source, depth_, top, values_.data() + i * depth_, scale_.data() + i * depth_);
                    continue;
                }
            }
            decode(codes, vectors[static_cast<std::size_t>(i)], row);
            const std::int32_t lift = lift_for(row.top, most_lift);
            lift_[static_cast<std::size_t>(i)] = lift;
            top_[static_cast<std::size_t>(i)] = row.top + lift;
            special_[static_cast<std::size_t>(i)] = row.special ? 1 : 0;
            float* const values = values_.data() + i * depth_;
            std::uint32_t* const scale = scale_.data() + i * depth_;
            const auto replicated = [](std::int32_t e) { return (static_cast<std::uint32_t>(e) & 0xFF) * 0x01010101U; };
            if (layout.identity && lift == 0) {
                std::memcpy(values, row.values.data(), row.values.size() * sizeof(float));
                for (std::size_t k = 0; k < row.exponents.size(); ++k)
                    scale[k] = replicated(relative(row.exponents[k], row.top));
                continue;
            }
            for (std::size_t at = 0; at < layout.source.size(); ++at) {
                const std::int64_t k = layout.source[at];
                const bool filler = k < 0;
                values[at] = filler ? 0.0F : lifted(row.values[static_cast<std::size_t>(k)], lift);
                scale[at] = replicated(filler ? simd::exponent_floor
                                              : relative(row.exponents[static_cast<std::size_t>(k)], row.top));
            }
        }
    });
}

PackedColumns::PackedColumns(const Codes& codes,
                             const Format& unit,
                             const WalkLayout& layout,
                             std::span<const std::int64_t> vectors,
                             std::int32_t most_lift)
    : count_(std::ssize(vectors)), depth_(std::ssize(layout.source)), special_(vectors.size()) {
    constexpr std::int64_t width = simd::panel_columns;
    const std::int64_t panels = (count_ + width - 1) / width;
    values_ = Scratch<float>(static_cast<std::size_t>(panels * width * depth_));
    scale_ = Scratch<std::int8_t>(values_.size());
    top_.resize(static_cast<std::size_t>(panels));
    lift_.resize(top_.size());
    const simd::PackKernels* const kernels = kernels_for(codes, unit, layout);
    const Decoder decode(codes.format, unit);
    parallel_for(panels, 1, [&](std::int64_t begin, std::int64_t end) {
        // Kept: fresh pages for a panel's decoded columns would cost more than the decoding.
        static thread_local std::vector<Decoded> columns(static_cast<std::size_t>(width));
        for (std::int64_t panel = begin; panel < end; ++panel) {
            std::int32_t top = no_exponent;
            const std::int64_t distinct = std::min(width, count_ - panel * width);
            float* const values = values_.data() + panel * width * depth_;
            std::int8_t* const scale = scale_.data() + panel * width * depth_;
            if (kernels != nullptr) {
                const auto first = static_cast<std::size_t>(panel * width);
                const auto packed = pack_bf16(*kernels,
                                              codes,
                                              vectors.subspan(first, static_cast<std::size_t>(distinct)),
                                              most_lift,
                                              values,
                                              scale,
                                              special_.data() + first);
                if (packed) {
                    top_[static_cast<std::size_t>(panel)] = *packed;
                    continue;
                }
            }
            for (std::int64_t j = 0; j < distinct; ++j) {
                const auto at = static_cast<std::size_t>(panel * width + j);
                Decoded& column = columns[static_cast<std::size_t>(j)];
                decode(codes, vectors[at], column);
                special_[at] = column.special ? 1 : 0;
                top = std::max(top, column.top);
            }
            const std::int32_t lift = lift_for(top, most_lift);
            lift_[static_cast<std::size_t>(panel)] = lift;
            top_[static_cast<std::size_t>(panel)] = top + lift;
            constexpr std::int64_t run =
                64;  // positions per column at a time: the panel's lines stay in the first-level cache
            // Nobody uses the rest of a panel that is not full.
            const std::int64_t filled = simd::columns_read(static_cast<int>(distinct));
            for (std::int64_t first = 0; first < depth_; first += run)
                for (std::int64_t j = 0; j < filled; ++j) {
                    const Decoded& column = columns[static_cast<std::size_t>(std::min(j, distinct - 1))];
                    for (std::int64_t at = first; at < std::min(first + run, depth_); ++at) {
                        const std::int64_t k = layout.source[static_cast<std::size_t>(at)];
                        const bool filler = k < 0;
                        const auto from = static_cast<std::size_t>(filler ? 0 : k);
                        values[at * width + j] = filler ? 0.0F : lifted(column.values[from], lift);
                        scale[at * width + j] = static_cast<std::int8_t>(
                            filler ? simd::exponent_floor : relative(column.exponents[from], top));
                    }
                }
        }
    });
}

std::int64_t PackedColumns::bytes() const noexcept {
    return static_cast<std::int64_t>(values_.size() * sizeof(float) + scale_.size());
}

}  // namespace bitreplay
