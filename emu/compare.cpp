#include "emu/compare.hpp"

#include <algorithm>
#include <bit>
#include <cstring>
#include <mutex>

#include "emu/parallel.hpp"
#include "formats/decode.hpp"
#include "formats/error.hpp"

namespace bitreplay {
namespace {

// A piece of the work; positions are row-major, turned into indices at the end.
struct Partial {
    struct Found {
        std::int64_t position;
        std::uint64_t expected, actual;
    };
    std::int64_t different = 0, nan_against_number = 0;
    std::vector<Found> first;
    std::array<std::int64_t, 65> histogram{};
};

void compare_elements(const Tensor& expected,
                      const Tensor& actual,
                      const CompareOptions& options,
                      std::int64_t begin,
                      std::int64_t end,
                      Partial& out) {
    const Format& format = expected.format();
    for (std::int64_t i = begin; i < end; ++i) {
        const std::uint64_t x = expected.get(i), y = actual.get(i);
        if (x == y) continue;
        const bool x_nan = is_nan(format, x), y_nan = is_nan(format, y);
        if (options.any_nan_equals_any_nan && x_nan && y_nan) continue;
        ++out.different;
        out.nan_against_number += x_nan != y_nan ? 1 : 0;
        ++out.histogram[static_cast<std::size_t>(std::bit_width(ulp_distance(format, x, y)))];
        if (out.first.size() < options.max_first) out.first.push_back({i, x, y});
    }
}

std::vector<std::int64_t> index_of(std::int64_t position, const std::vector<std::int64_t>& shape) {
    std::vector<std::int64_t> index(shape.size());
    for (std::size_t axis = shape.size(); axis-- > 0;) {
        index[axis] = position % shape[axis];
        position /= shape[axis];
    }
    return index;
}

}  // namespace

std::uint64_t ulp_distance(const Format& format, std::uint64_t x, std::uint64_t y) noexcept {
    const std::uint64_t sign = format.sign_mask();
    const std::uint64_t below_x = (x & ~sign) >> format.padding_bits, below_y = (y & ~sign) >> format.padding_bits;
    if (((x ^ y) & sign) != 0) return below_x + below_y;
    return below_x > below_y ? below_x - below_y : below_y - below_x;
}

Comparison compare(const Tensor& expected, const Tensor& actual, const CompareOptions& options) {
    if (expected.format() != actual.format() || expected.shape() != actual.shape())
        throw InputError("expected " + describe(expected) + " cannot be compared with " + describe(actual));
    Partial total;
    std::mutex guard;
    constexpr std::int64_t block = 1 << 14;
    const std::int64_t blocks = (expected.size() + block - 1) / block;
    const auto bytes = static_cast<std::size_t>(expected.element_bytes());
    parallel_for(blocks, 4, [&](std::int64_t first_block, std::int64_t last_block) {
        Partial mine;
        for (std::int64_t b = first_block; b < last_block; ++b) {
            const std::int64_t begin = b * block, end = std::min(begin + block, expected.size());
            const std::size_t at = static_cast<std::size_t>(begin) * bytes;
            if (std::memcmp(expected.bytes().data() + at,
                            actual.bytes().data() + at,
                            static_cast<std::size_t>(end - begin) * bytes) != 0)
                compare_elements(expected, actual, options, begin, end, mine);
        }
        if (mine.different == 0) return;
        const std::scoped_lock lock(guard);
        total.different += mine.different;
        total.nan_against_number += mine.nan_against_number;
        total.first.insert(total.first.end(), mine.first.begin(), mine.first.end());
        for (std::size_t i = 0; i < mine.histogram.size(); ++i) total.histogram[i] += mine.histogram[i];
    });

    Comparison out{expected.size(), total.different, total.nan_against_number, {}, total.histogram};
    std::sort(
        total.first.begin(), total.first.end(), [](const auto& x, const auto& y) { return x.position < y.position; });
    if (total.first.size() > options.max_first) total.first.resize(options.max_first);
    for (const Partial::Found& found : total.first)
        out.first.push_back({index_of(found.position, expected.shape()),
                             found.expected,
                             found.actual,
                             ulp_distance(expected.format(), found.expected, found.actual)});
    return out;
}

}  // namespace bitreplay
