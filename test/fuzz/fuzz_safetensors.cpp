// Any bytes: an InputError with one line, or tensors that cover the data exactly.
#include <memory>
#include <string>
#include <vector>

#include "emu/io/safetensors.hpp"
#include "formats/error.hpp"
#include "test/fuzz/fuzz.hpp"

using namespace bitreplay;

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    // Exactly this many bytes on the heap, so that AddressSanitizer sees a step beyond them.
    const auto owner = std::make_shared<std::vector<std::uint8_t>>(data, data + size);
    const auto bytes = std::as_bytes(std::span<const std::uint8_t>(*owner));
    try {
        const SafetensorsFile file = SafetensorsFile::parse(bytes, "f", owner);
        std::size_t total = 0, sum = 0;
        for (const std::string& name : file.names()) {
            const StoredTensor& stored = file.stored(name);
            total += stored.bytes.size();
            for (const std::byte b : stored.bytes) sum += static_cast<std::size_t>(b);
            try {
                const Tensor tensor = file.tensor(name);
                fuzz::require(tensor.bytes().size() == stored.bytes.size(), "a tensor is its stored bytes");
                if (tensor.size() > 0) sum += tensor.get(0) + tensor.get(tensor.size() - 1);
            } catch (const InputError&) {
                // not a floating-point dtype
            }
        }
        std::uint64_t header = 0;
        std::memcpy(&header, data, 8);
        fuzz::require(8 + header + total == size, "tensors cover the data without gap or overlap");
        volatile std::size_t read = sum;
        (void)read;
    } catch (const InputError& error) {
        const std::string what = error.what();
        fuzz::require(what.starts_with("f: ") && what.find('\n') == std::string::npos,
                      "an error is one line with the file name");
    }
    return 0;
}
