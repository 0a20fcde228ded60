#include "tools/progress.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include "tools/report.hpp"

namespace bitreplay::tools {

Progress::Progress() : terminal_(::isatty(STDERR_FILENO) == 1), start_(std::chrono::steady_clock::now()) {}

Progress::~Progress() {
    if (shown_) fmt::print(stderr, "\r\033[K");
}

void Progress::show(const std::string& line) {
    if (!terminal_ || std::chrono::steady_clock::now() - start_ < std::chrono::seconds(2)) return;
    shown_ = true;
    fmt::print(stderr, "\r\033[K{}", one_line(line));
    std::fflush(stderr);
}

}  // namespace bitreplay::tools
