#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

namespace bitreplay::test {

/// Seeded generator (splitmix64); the seed is printed on failure. BITREPLAY_SEED overrides the default.
class Random {
public:
    explicit Random(std::uint64_t stream = 0);
    std::uint64_t next() noexcept;
    /// Uniform in [0, bound).
    std::uint64_t below(std::uint64_t bound) noexcept { return next() % bound; }

private:
    std::uint64_t state_;
};

std::filesystem::path testdata();
/// Captures outside the repository; may not exist.
std::filesystem::path captures();
std::string cli();

/// Marks the running test as skipped, visibly (exit code 77 of a binary in which nothing failed).
void skip(const std::string& reason);
bool was_skipped() noexcept;

/// A fresh empty folder, removed at exit.
std::filesystem::path scratch(const std::string& name);

/// Runs a shell command; output holds stdout and stderr.
struct CommandResult {
    int exit_code;
    std::string output;
};
CommandResult run(const std::string& command);

}  // namespace bitreplay::test
