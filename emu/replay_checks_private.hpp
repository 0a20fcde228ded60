#pragma once
// Private: how a replay says what is wrong with its input, and the checks that need no values.

#include <string>
#include <vector>

#include "emu/io/manifest_tensors.hpp"
#include "formats/error.hpp"

namespace bitreplay::detail {

[[noreturn]] inline void fail_manifest(const Manifest& manifest, const std::string& reason) {
    throw FileError(manifest.path.string() + ": " + reason);
}

/// Runs a function on behalf of an op; what it throws then names the manifest and the op.
template <class Function>
auto about(const Manifest& manifest, const ManifestOp& op, const Function& function) {
    return placed(manifest.path.string(), "op " + op.id, function);
}

/// The same for what is expected of an output ("" for the only one); to be run inside about().
template <class Function>
auto about_output(const std::string& output, const Function& function) {
    try {
        return function();
    } catch (const InputError& error) {
        throw InputError("expect" + (output.empty() ? "" : " " + output) + ": " + error.what());
    }
}

/// InputError if what was recorded cannot be a part of that type and shape. Folding of leading dimensions is no
/// difference: [2, 3, 8] may have been recorded as [6, 8].
void check_same(const std::string& output, const Outline& recorded, const Outline& part);

/// Compares the shapes of the matrix products among the needed ops, and of what was recorded of them, as far as the
/// manifest and the headers of its files tell them: before anything is generated or computed. `recorded`: as in
/// ReplayOptions. Throws FileError.
void check_shapes(const Manifest& manifest, ManifestTensors& tensors, const std::vector<bool>& needed, bool recorded);

}  // namespace bitreplay::detail
