#include "test/support/support.hpp"

#include <unistd.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <iostream>

namespace bitreplay::test {
namespace {
bool skipped = false;

std::uint64_t seed() {
    static const std::uint64_t value = [] {
        const char* text = std::getenv("BITREPLAY_SEED");
        const std::uint64_t chosen = text != nullptr ? std::strtoull(text, nullptr, 0) : 20260101;
        std::cout << "BITREPLAY_SEED=" << chosen << '\n';  // ctest shows it when the test fails
        return chosen;
    }();
    return value;
}
}  // namespace

Random::Random(std::uint64_t stream) : state_(seed() + stream * 0xD1342543DE82EF95U) {}

std::uint64_t Random::next() noexcept {
    std::uint64_t z = state_ += 0x9E3779B97F4A7C15U;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9U;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBU;
    return z ^ (z >> 31);
}

std::filesystem::path testdata() { return BITREPLAY_TESTDATA; }
std::filesystem::path captures() { return BITREPLAY_CAPTURES; }
std::string cli() { return BITREPLAY_CLI; }

void skip(const std::string& reason) {
    skipped = true;
    std::cout << "SKIPPED: " << reason << '\n';
}
bool was_skipped() noexcept { return skipped; }

std::filesystem::path scratch(const std::string& name) {
    struct Folder {
        std::filesystem::path path = std::filesystem::temp_directory_path() / ("bitreplay-test-" + std::to_string(::getpid()));
        ~Folder() {
            std::error_code ignored;
            std::filesystem::remove_all(path, ignored);
        }
    };
    static const Folder root;
    const std::filesystem::path folder = root.path / name;
    std::filesystem::remove_all(folder);
    std::filesystem::create_directories(folder);
    return folder;
}

CommandResult run(const std::string& command) {
    CommandResult result{-1, {}};
    FILE* pipe = ::popen((command + " 2>&1").c_str(), "r");
    if (pipe == nullptr) return result;
    std::array<char, 4096> buffer{};
    while (const std::size_t n = std::fread(buffer.data(), 1, buffer.size(), pipe)) result.output.append(buffer.data(), n);
    const int status = ::pclose(pipe);
    result.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    return result;
}

}  // namespace bitreplay::test
