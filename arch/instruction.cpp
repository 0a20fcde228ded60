#include <charconv>

#include "arch/gpu.hpp"
#include "formats/error.hpp"

namespace bitreplay {
namespace {

[[noreturn]] void bad(std::string_view text, const std::string& reason) {
    throw InputError("instruction \"" + std::string(text.substr(0, 100)) + "\": " + reason +
                     " (expected e.g. mma.m16n8k16.f32.bf16.bf16.f32 or wgmma.m64n8k16.f32.bf16.bf16)");
}

std::vector<std::string_view> split(std::string_view text) {
    std::vector<std::string_view> parts;
    while (true) {
        const auto dot = text.find('.');
        parts.push_back(text.substr(0, dot));
        if (dot == std::string_view::npos) return parts;
        text.remove_prefix(dot + 1);
    }
}

/// Reads letter + number from the front of `text`.
int dimension(std::string_view& text, char letter, std::string_view whole) {
    int value = 0;
    if (text.empty() || text.front() != letter) bad(whole, "malformed shape");
    const auto [end, error] = std::from_chars(text.data() + 1, text.data() + text.size(), value);
    if (error != std::errc{} || value < 1 || value > 1024) bad(whole, "malformed shape");
    text.remove_prefix(static_cast<std::size_t>(end - text.data()));
    return value;
}

}  // namespace

Instruction parse_instruction(std::string_view text) {
    const std::vector<std::string_view> parts = split(text);
    if (parts.size() != 5 && parts.size() != 6) bad(text, "wrong number of fields");
    Instruction out{.family = std::string(parts[0]), .shape = {}, .types = {}};
    if (out.family != "mma" && out.family != "wgmma" && out.family != "tcgen05") bad(text, "unknown family");
    std::string_view shape = parts[1];
    out.shape.m = dimension(shape, 'm', text);
    out.shape.n = dimension(shape, 'n', text);
    out.shape.k = dimension(shape, 'k', text);
    if (!shape.empty()) bad(text, "malformed shape");
    const auto type = [&](std::size_t i) {
        const NamedFormat* row = find_format(parts[i]);
        if (row == nullptr || row->ptx != parts[i]) bad(text, "unknown type \"" + std::string(parts[i]) + "\"");
        return row->format;
    };
    out.types = {.d = type(2), .a = type(3), .b = type(4), .c = parts.size() == 6 ? type(5) : type(2)};
    return out;
}

std::string to_string(const Instruction& instruction) {
    const auto& [m, n, k] = instruction.shape;
    const DotTypes& t = instruction.types;
    std::string out = instruction.family + ".m" + std::to_string(m) + "n" + (n == 0 ? "N" : std::to_string(n)) + "k" + std::to_string(k);
    for (const Format* format : {&t.d, &t.a, &t.b}) out += "." + std::string(named(*format).ptx);
    if (instruction.family == "mma") out += "." + std::string(named(t.c).ptx);
    return out;
}

std::string_view to_string(Evidence::Level level) noexcept {
    constexpr std::string_view names[] = {"measured", "published", "unverified"};
    return names[static_cast<std::size_t>(level)];
}

}  // namespace bitreplay
