#pragma once

#include <cstddef>
#include <filesystem>
#include <span>
#include <string_view>

namespace bitreplay {

/// A file that appears complete or not at all: bytes go to a temporary file in the same folder, commit() flushes it to
/// the disk and renames it over `path` (through a symbolic link). Without commit() the temporary file is removed.
/// Anything that is not a regular file (/dev/stdout, a pipe) is written directly. Every failure, such as an unwritable
/// folder or a full disk, throws InputError "path: reason" and leaves what was at `path` untouched.
class AtomicFile {
public:
    explicit AtomicFile(const std::filesystem::path& path);
    AtomicFile(const AtomicFile&) = delete;
    AtomicFile& operator=(const AtomicFile&) = delete;
    ~AtomicFile();

    void write(std::span<const std::byte> bytes);
    void write(std::string_view text) { write(std::as_bytes(std::span(text))); }
    void commit();

private:
    [[noreturn]] void fail(int error);

    std::filesystem::path shown_;      // as the caller named it, for messages
    std::filesystem::path target_;     // links resolved
    std::filesystem::path temporary_;  // empty: target_ is written directly
    int descriptor_ = -1;
};

/// The whole file at once.
void write_file(const std::filesystem::path& path, std::string_view text);

}  // namespace bitreplay
