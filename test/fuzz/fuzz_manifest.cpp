// Any text: an InputError or NotModelled with one line, or a manifest whose names all lead somewhere.
#include <string>

#include "emu/io/manifest.hpp"
#include "formats/error.hpp"
#include "test/fuzz/fuzz.hpp"

using namespace bitreplay;

namespace {
void require_line(const std::string& what) {
    fuzz::require(what.starts_with("m.json: ") && what.find('\n') == std::string::npos,
                  "an error is one line with the file name");
}
}  // namespace

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    try {
        const Manifest manifest = parse_manifest({reinterpret_cast<const char*>(data), size}, "m.json");
        for (const ManifestOp& op : manifest.ops)
            for (const auto& [name, expectation] : op.expect)
                fuzz::require(!expectation.sha256.empty() || manifest.tensors.contains(expectation.tensor),
                              "expected tensors exist");
        for (const auto& [name, source] : manifest.tensors)
            fuzz::require(source.synthetic.has_value() || !source.file.empty(), "every tensor has a source");
    } catch (const InputError& error) {
        require_line(error.what());
    } catch (const NotModelled& error) {
        require_line(error.what());
    }
    return 0;
}
