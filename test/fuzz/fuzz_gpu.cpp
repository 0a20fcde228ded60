// Any text as a GPU file: an InputError or NotModelled with one line, or a GPU.
#include <sys/mman.h>
#include <unistd.h>

#include <string>

#include "arch/gpu.hpp"
#include "formats/error.hpp"
#include "test/fuzz/fuzz.hpp"

using namespace bitreplay;

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    const int descriptor = ::memfd_create("gpu.json", 0);
    fuzz::require(descriptor >= 0 && ::write(descriptor, data, size) == static_cast<ssize_t>(size),
                  "a file in memory can be written");
    std::string what;
    try {
        const Gpu gpu = load_gpu_file("/proc/self/fd/" + std::to_string(descriptor));
        fuzz::require(!gpu.name.empty(), "a GPU has a name");
    } catch (const InputError& error) {
        what = error.what();
    } catch (const NotModelled& error) {
        what = error.what();
    }
    ::close(descriptor);
    fuzz::require(what.find('\n') == std::string::npos, "an error is one line");
    return 0;
}
