#include "tools/report.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <bit>
#include <nlohmann/json.hpp>

#include "formats/convert.hpp"
#include "formats/error.hpp"
#include "formats/strict_json.hpp"

namespace bitreplay::tools {
namespace {

std::string place(const std::vector<std::int64_t>& index) { return fmt::format("[{}]", fmt::join(index, ", ")); }

std::string hex(const Format& format, std::uint64_t code) { return fmt::format("0x{:0{}x}", code, 2 * storage_bytes(format)); }

std::string name(const Check& check) { return one_line(check.output.empty() ? check.id : check.id + "." + check.output); }

}  // namespace

std::string one_line(std::string_view text) {
    std::string out;
    for (std::size_t i = 0; i < text.size(); ++i) {
        const auto byte = static_cast<unsigned char>(text[i]);
        // Control characters: below a space, DEL, and U+0080 to U+009F, which UTF-8 begins with 0xC2.
        const bool second = i > 0 && text[i - 1] == '\xC2' && byte >= 0x80 && byte < 0xA0;
        if (byte < 0x20 || byte == 0x7F || second)
            out += detail::printable(text.substr(i, 1));
        else
            out += text[i];
    }
    return out;
}

std::string show(const Format& format, std::uint64_t code) {
    const Number number = decode(format, code);
    if (number.kind == Kind::nan) return hex(format, code) + " (nan)";
    // Every format fits in a double exactly.
    return fmt::format("{} ({})", hex(format, code), std::bit_cast<double>(convert(format, fp64, code)));
}

std::string show_distance(const Format& format, const Difference& difference) {
    const Number expected = decode(format, difference.expected_bits), actual = decode(format, difference.actual_bits);
    if (expected.kind == Kind::nan || actual.kind == Kind::nan) return "nan";
    const auto value = [&](std::uint64_t code) { return std::bit_cast<double>(convert(format, fp64, code)); };
    const bool below = value(difference.actual_bits) < value(difference.expected_bits);
    return fmt::format("{}{} ulp", below ? "-" : "+", difference.ulp);
}

std::string to_text(const ReplayReport& report, bool quiet) {
    std::string out;
    std::size_t width = 0;
    std::int64_t compared = 0;
    for (const Check& check : report.checks) {
        width = std::max(width, name(check).size());
        compared += check.comparison.compared;
    }
    for (const Check& check : report.checks) {
        const Comparison& c = check.comparison;
        if (quiet && c.equal()) continue;
        const bool digest = !check.expected_sha256.empty();
        out += fmt::format("{:<{}}  {:>10} compared  {:>10} differing{}\n", name(check), width, c.compared,
                           digest && !c.equal() ? "some" : std::to_string(c.different), digest ? "  (sha256)" : "");
        if (digest && !c.equal()) out += fmt::format("    expected sha256 {}\n    got             {}\n", check.expected_sha256, check.actual_sha256);
        for (const Difference& d : c.first)
            out += fmt::format("    {}: expected {}, got {}, {}\n", place(d.index), show(check.format, d.expected_bits),
                               show(check.format, d.actual_bits), show_distance(check.format, d));
    }
    for (const Skipped& skipped : report.not_modelled) out += fmt::format("{:<{}}  not modelled: {}\n", one_line(skipped.id), width, one_line(skipped.reason));
    for (const std::string& warning : report.warnings) out += "warning: " + one_line(warning) + "\n";
    const auto different = std::ranges::count_if(report.checks, [](const Check& check) { return !check.comparison.equal(); });
    std::string verdict = report.result();
    if (verdict == "not_modelled") verdict = "not modelled";
    out += fmt::format("{}: {} checks, {} elements compared, {} checks differ, {} ops not modelled\n", verdict, report.checks.size(), compared, different,
                       report.not_modelled.size());
    return out;
}

std::string to_json(const ReplayReport& report, const Manifest& manifest, double seconds) {
    nlohmann::ordered_json out;
    out["result"] = report.result();
    out["checks"] = nlohmann::ordered_json::array();
    for (const Check& check : report.checks) {
        nlohmann::ordered_json item{{"id", check.id}, {"output", check.output}, {"compared", check.comparison.compared}, {"different", check.comparison.different}};
        item["first"] = nlohmann::ordered_json::array();
        for (const Difference& d : check.comparison.first)
            item["first"].push_back({{"index", d.index},
                                     {"expected_bits", hex(check.format, d.expected_bits)},
                                     {"actual_bits", hex(check.format, d.actual_bits)},
                                     {"ulp", d.ulp}});
        if (!check.expected_sha256.empty()) {
            item["expected_sha256"] = check.expected_sha256;
            item["actual_sha256"] = check.actual_sha256;
        }
        out["checks"].push_back(std::move(item));
    }
    out["not_modelled"] = nlohmann::ordered_json::array();
    for (const Skipped& skipped : report.not_modelled) out["not_modelled"].push_back({{"id", skipped.id}, {"reason", skipped.reason}});
    out["warnings"] = report.warnings;
    out["seconds"] = seconds;
    out["gpu"] = manifest.gpu;
    out["version"] = BITREPLAY_VERSION;
    if (!manifest.software.empty()) out["software"] = nlohmann::ordered_json::parse(manifest.software);
    return out.dump(1, ' ', true, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

Params parameters(const std::vector<std::string>& pairs) {
    Params params;
    for (const std::string& pair : pairs) {
        const auto equals = pair.find('=');
        if (equals == std::string::npos || equals == 0) throw InputError("--param " + detail::printable(pair) + ": expected name=value");
        const std::string value = pair.substr(equals + 1);
        const bool json = value == "true" || value == "false" || (!value.empty() && value.find_first_not_of("0123456789") == std::string::npos);
        params.set(pair.substr(0, equals), json ? value : nlohmann::json(value).dump());
    }
    return params;
}

}  // namespace bitreplay::tools
