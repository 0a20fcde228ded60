#include "emu/io/atomic_file.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <string>
#include <utility>

#include "formats/error.hpp"

namespace bitreplay {

AtomicFile::AtomicFile(const std::filesystem::path& path) : shown_(path), target_(path) {
    struct stat status {};
    const bool exists = ::stat(path.c_str(), &status) == 0;
    if (exists && S_ISDIR(status.st_mode)) fail(EISDIR);
    // /dev/stdout may be a regular file, but replacing it by name would lose what the caller's shell holds open.
    const std::string name = path.string();
    if ((exists && !S_ISREG(status.st_mode)) || name.starts_with("/dev/") || name.starts_with("/proc/")) {
        descriptor_ = ::open(path.c_str(), O_WRONLY | O_APPEND | O_CLOEXEC);
        if (descriptor_ < 0) fail(errno);
        return;
    }
    if (exists) {
        std::error_code error;
        target_ = std::filesystem::canonical(path, error);
        if (error) fail(error.value());
    }
    static std::atomic<unsigned> counter = 0;
    for (int attempt = 0; descriptor_ < 0; ++attempt) {
        temporary_ = target_;
        temporary_ += ".tmp-" + std::to_string(::getpid()) + "-" + std::to_string(counter++);
        descriptor_ = ::open(temporary_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
        if (descriptor_ < 0 && (errno != EEXIST || attempt == 100)) {
            temporary_.clear();
            fail(errno);
        }
    }
    if (exists) (void)::fchmod(descriptor_, status.st_mode & 07777);
}

AtomicFile::~AtomicFile() {
    if (descriptor_ >= 0) ::close(descriptor_);
    if (!temporary_.empty()) ::unlink(temporary_.c_str());
}

void AtomicFile::fail(int error) {
    if (descriptor_ >= 0) ::close(std::exchange(descriptor_, -1));
    if (!temporary_.empty()) {
        ::unlink(temporary_.c_str());
        temporary_.clear();
    }
    throw InputError(shown_.string() + ": cannot write: " + std::strerror(error));
}

void AtomicFile::write(std::span<const std::byte> bytes) {
    if (descriptor_ < 0) fail(EBADF);
    while (!bytes.empty()) {
        const std::size_t piece = bytes.size() < (std::size_t{1} << 30) ? bytes.size() : std::size_t{1} << 30;
        const ssize_t written = ::write(descriptor_, bytes.data(), piece);
        if (written < 0 && errno == EINTR) continue;
        if (written < 0) fail(errno);
        bytes = bytes.subspan(static_cast<std::size_t>(written));
    }
}

void AtomicFile::commit() {
    if (descriptor_ < 0) fail(EBADF);
    if (!temporary_.empty() && ::fsync(descriptor_) != 0) fail(errno);
    if (::close(std::exchange(descriptor_, -1)) != 0) fail(errno);
    if (temporary_.empty()) return;
    if (::rename(temporary_.c_str(), target_.c_str()) != 0) fail(errno);
    temporary_.clear();
}

void write_file(const std::filesystem::path& path, std::string_view text) {
    AtomicFile file(path);
    file.write(text);
    file.commit();
}

}  // namespace bitreplay
