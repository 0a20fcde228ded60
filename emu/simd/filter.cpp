#include "emu/simd/filter.hpp"

#include <array>
#include <bit>
#include <cmath>

namespace bitreplay {

#if defined(__x86_64__)
namespace avx512 {
const simd::FilterKernels* filter_row() noexcept;
}
#endif

namespace simd {

int filter_roundings(int block, int position) noexcept {
    // A pair sum of a chain rounds twice at most, the first one (from zero) once; then the tree of chains.
    const int chains = filter_chains(block), length = block / 2 / chains, place = position / 2 / chains;
    const int in_chain = 2 * (length - place) - (place == 0 ? 1 : 0);
    return in_chain + std::countr_zero(static_cast<unsigned>(chains));
}

FilterSegment::FilterSegment(const std::uint16_t* bf16_codes, std::int64_t size, int block) noexcept : lowest_bits{} {
    static constexpr auto zeros = [] {  // trailing zeros of a significand, by its fraction
        std::array<std::int8_t, 128> out{};
        for (unsigned fraction = 0; fraction < 128; ++fraction)
            out[fraction] = static_cast<std::int8_t>(std::countr_zero(fraction | 0x80U));
        return out;
    }();
    double weights[64], sums[4] = {};
    for (int k = 0; k < block; ++k) weights[k] = filter_roundings(block, k);
    int largest = 0, position = 0;
    for (std::int64_t k = 0; k < size; ++k) {
        const unsigned magnitude = bf16_codes[k] & 0x7FFFU;
        const int field = static_cast<int>(magnitude >> 7);
        if (magnitude != 0) {
            unfit |= field == 0;
            ++count;
            ++lowest_bits[field + zeros[magnitude & 0x7F] + 1];
            largest = field > largest ? field : largest;
        }
        const double value = static_cast<double>(std::bit_cast<float>(magnitude << 16));
        sums[k % 4] += weights[position] * value * value;
        position = position + 1 == block ? 0 : position + 1;
    }
    unfit |= largest > 127 + filter_exponent;
    top_field = largest > 1 ? largest : 1;
    // Rounded up: each step in double precision errs by 2^-53 at most, the conversion by 2^-24.
    norm = unfit ? 0.0F : static_cast<float>(std::sqrt((sums[0] + sums[1]) + (sums[2] + sums[3]))) * (1.0F + 0x1p-22F);
}

void FilterSegment::deeper(int top, std::uint16_t (&out)[depth_levels]) const noexcept {
    int rest = count;
    for (int i = 0; i < depth_levels; ++i) {
        out[i] = static_cast<std::uint16_t>(rest);
        // lowest_bits is indexed by place + 8 with the place of a fraction's last bit at field - 7.
        const int place = top - i + 8;
        if (place >= 0 && place < 272) rest -= lowest_bits[place];
    }
}

int middle_of(const std::uint16_t (&deeper)[depth_levels]) noexcept {
    int i = 0;
    while (i + 1 < depth_levels && deeper[i] > deeper[0] / 16) ++i;
    return i;
}

const FilterKernels* filter_kernels() noexcept {
#if defined(__x86_64__)
    __builtin_cpu_init();
    if (__builtin_cpu_supports("avx512bf16") && __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("fma"))
        return avx512::filter_row();
#endif
    return nullptr;
}

}  // namespace simd
}  // namespace bitreplay
