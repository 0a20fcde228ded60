#pragma once
// What the fuzz targets share: an input read piece by piece, and a law that stops the run when it is broken.

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <span>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

namespace bitreplay::fuzz {

/// Stops with a message; the input at hand is then a finding.
inline void require(bool holds, const char* law) {
    if (holds) return;
    std::fprintf(stderr, "broken law: %s\n", law);
    std::abort();
}

/// The input as numbers; zeros once it is used up.
class Input {
public:
    Input(const std::uint8_t* data, std::size_t size) : rest_(data, size) {}

    bool empty() const noexcept { return rest_.empty(); }
    template <class Number>
    Number take() noexcept {
        Number value{};
        const std::size_t n = rest_.size() < sizeof value ? rest_.size() : sizeof value;
        if (n != 0) std::memcpy(&value, rest_.data(), n);
        rest_ = rest_.subspan(n);
        return value;
    }
    std::size_t below(std::size_t bound) noexcept { return take<std::uint8_t>() % bound; }

private:
    std::span<const std::uint8_t> rest_;
};

}  // namespace bitreplay::fuzz
