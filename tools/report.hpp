#pragma once

#include <string>
#include <string_view>

#include "emu/replay.hpp"

namespace bitreplay::tools {

/// Names and reasons from a manifest as part of one line: bytes of control characters become \xNN.
std::string one_line(std::string_view text);
/// The values of --param NAME=VALUE: JSON where that parses (numbers, true, false) and words otherwise. InputError for a
/// pair without a name.
Params parameters(const std::vector<std::string>& pairs);
/// "0x3f81 (1.0078125)": a code and its value.
std::string show(const Format& format, std::uint64_t code);
/// "+1 ulp" of an actual code against the expected one, or why there is no number.
std::string show_distance(const Format& format, const Difference& difference);
/// The lines of a replay report for people, ending with a newline.
std::string to_text(const ReplayReport& report, bool quiet);
/// FORMAT's JSON report of `bitreplay replay --json`.
std::string to_json(const ReplayReport& report, const Manifest& manifest, double seconds);

}  // namespace bitreplay::tools
