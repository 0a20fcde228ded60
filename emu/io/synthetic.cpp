#include "emu/io/synthetic.hpp"

#include <cstring>
#include <string>

#include "arch/fp32.hpp"
#include "emu/parallel.hpp"
#include "formats/convert.hpp"
#include "formats/error.hpp"

namespace bitreplay {
namespace {

constexpr std::uint64_t splitmix64(std::uint64_t seed, std::uint64_t element) noexcept {
    std::uint64_t z = seed + (element + 1) * 0x9E3779B97F4A7C15U;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9U;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBU;
    return z ^ (z >> 31);
}

std::uint64_t uniform_code(const SyntheticSpec& spec, std::uint64_t element) noexcept {
    const std::int64_t n = static_cast<std::int64_t>(splitmix64(spec.seed, element)) >> 11;
    return round_pack(spec.format, Exact{n < 0, static_cast<Uint128>(n < 0 ? -n : n), spec.exp2 - 52});
}

// n + 2^17, below 2^18: the four 16-bit fields with their sign bits flipped are unsigned and sum without borrows.
constexpr std::int64_t middle = std::int64_t{1} << 17;
constexpr std::uint32_t biased_sum(std::uint64_t seed, std::uint64_t element) noexcept {
    const std::uint64_t z = splitmix64(seed, element) ^ 0x8000800080008000U;
    const std::uint64_t pairs = (z & 0x0000FFFF0000FFFFU) + ((z >> 16) & 0x0000FFFF0000FFFFU);
    return static_cast<std::uint32_t>(pairs + (pairs >> 32));
}

std::uint64_t code_of(const SyntheticSpec& spec, std::uint32_t sum) noexcept {
    const std::int64_t n = static_cast<std::int64_t>(sum) - middle;
    const Exact value{n < 0, static_cast<Uint128>(n < 0 ? -n : n), spec.exp2 - 15};
    if (!spec.plus) return round_pack(spec.format, value);
    const auto exact = static_cast<std::uint32_t>(round_pack(fp32, value));
    return convert(fp32, spec.format, f32::add(exact, *spec.plus));
}

// n has only 2^18 values: above a few thousand elements, a table of their codes is much faster than rounding each one.
template <class Code>
class Codes {
public:
    Codes(const SyntheticSpec& spec, std::int64_t elements) : spec_(spec) {
        if (elements < middle || spec.generator == Generator::u53) return;
        table_.resize(static_cast<std::size_t>(2 * middle));
        parallel_for(2 * middle, 1 << 14, [&](std::int64_t begin, std::int64_t end) {
            for (std::int64_t i = begin; i < end; ++i)
                table_[static_cast<std::size_t>(i)] = static_cast<Code>(code_of(spec_, static_cast<std::uint32_t>(i)));
        });
    }

    // Elements first, first + 1, … of the plain tensor.
    void fill(std::uint64_t first, std::span<Code> out) const {
        const std::uint64_t seed = spec_.seed;
        if (spec_.generator == Generator::u53) {
            for (std::size_t i = 0; i < out.size(); ++i) out[i] = static_cast<Code>(uniform_code(spec_, first + i));
            return;
        }
        if (table_.empty()) {
            for (std::size_t i = 0; i < out.size(); ++i)
                out[i] = static_cast<Code>(code_of(spec_, biased_sum(seed, first + i)));
            return;
        }
        const Code* table = table_.data();
        for (std::size_t i = 0; i < out.size(); ++i) out[i] = table[biased_sum(seed, first + i)];
    }

private:
    const SyntheticSpec& spec_;
    std::vector<Code> table_;
};

template <class Code>
void mirror(const SyntheticSpec& spec, std::span<Code> row) {
    const auto sign = static_cast<Code>(spec.format.sign_mask());
    const std::size_t k = row.size();
    for (std::size_t i = 0; i < k / 2; ++i)
        row[k - 1 - i] = spec.mirror == Mirror::odd ? static_cast<Code>(row[i] ^ sign) : row[i];
    if (spec.mirror == Mirror::odd && k % 2 == 1)
        row[k / 2] = static_cast<Code>(row[k / 2] & sign);  // 0·v keeps v's sign
}

// Row r of the output is row source(r) of the plain tensor.
template <class Code, class Source>
void generate(const SyntheticSpec& spec, Tensor& out, const Source& source) {
    const std::span<std::byte> bytes = out.mutable_bytes();
    const std::int64_t cols = out.cols();
    const Codes<Code> codes(spec, out.size());
    constexpr std::int64_t piece = 1 << 14;
    if (spec.mirror == Mirror::none) {
        // Rows can be few and long or many and short, so pieces ignore them.
        parallel_for(out.size(), piece, [&](std::int64_t begin, std::int64_t end) {
            std::vector<Code> buffer;
            for (std::int64_t at = begin; at < end;) {
                const std::int64_t stop = std::min({end, (at / cols + 1) * cols, at + piece});
                buffer.resize(static_cast<std::size_t>(stop - at));
                codes.fill(static_cast<std::uint64_t>(source(at / cols) * cols + at % cols), buffer);
                std::memcpy(bytes.data() + static_cast<std::size_t>(at) * sizeof(Code),
                            buffer.data(),
                            buffer.size() * sizeof(Code));
                at = stop;
            }
        });
        return;
    }
    parallel_for(out.rows(), cols > piece ? 1 : piece / cols, [&](std::int64_t begin, std::int64_t end) {
        std::vector<Code> row(static_cast<std::size_t>(cols));
        for (std::int64_t r = begin; r < end; ++r) {
            codes.fill(static_cast<std::uint64_t>(source(r) * cols), row);
            mirror<Code>(spec, row);
            std::memcpy(bytes.data() + static_cast<std::size_t>(r * cols) * sizeof(Code),
                        row.data(),
                        row.size() * sizeof(Code));
        }
    });
}

template <class Source>
Tensor generate(const SyntheticSpec& spec, std::vector<std::int64_t> shape, const Source& source) {
    if (spec.exp2 < -134 || spec.exp2 > 125) throw InputError("synthetic: exp2 must be from -134 to 125");
    Tensor out(spec.format, std::move(shape));
    if (out.size() == 0) return out;
    switch (out.element_bytes()) {
        case 1: generate<std::uint8_t>(spec, out, source); break;
        case 2: generate<std::uint16_t>(spec, out, source); break;
        case 4: generate<std::uint32_t>(spec, out, source); break;
        default: generate<std::uint64_t>(spec, out, source);
    }
    return out;
}

}  // namespace

Tensor synthetic(const SyntheticSpec& spec) {
    return generate(spec, spec.shape, [](std::int64_t r) { return r; });
}

Tensor synthetic_rows(const SyntheticSpec& spec, std::span<const std::int64_t> rows) {
    const std::int64_t cols = spec.shape.empty() ? 1 : spec.shape.back();
    std::int64_t count = 1;
    for (std::size_t i = 0; i + 1 < spec.shape.size(); ++i)
        if (spec.shape[i] < 0 || __builtin_mul_overflow(count, spec.shape[i], &count))
            throw InputError("shape " + describe(spec.shape) + " is too large");
    for (const std::int64_t r : rows)
        if (r < 0 || r >= count)
            throw InputError("synthetic: row " + std::to_string(r) + " is not below " + std::to_string(count));
    return generate(spec, {static_cast<std::int64_t>(rows.size()), cols}, [rows](std::int64_t r) {
        return rows[static_cast<std::size_t>(r)];
    });
}

}  // namespace bitreplay
