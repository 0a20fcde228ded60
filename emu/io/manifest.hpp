#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "emu/io/synthetic.hpp"
#include "emu/params.hpp"
#include "reduction_trees/cublaslt_log.hpp"

namespace bitreplay {

/// Where a tensor comes from: a key of a safetensors file, or the generator.
struct TensorSource {
    std::filesystem::path file;
    std::string key;
    std::optional<Format> dtype;  ///< for a file: read the stored codes as this format (fp4 in U8, tf32 in F32)
    std::optional<SyntheticSpec> synthetic;
};

/// What an output must be equal to: a tensor (of which `rows` of the first and `cols` of the last dimension were kept,
/// absent: all; with `batch`, entries of the first dimension of [B, M, N], `rows` are those of M), or the SHA-256 of the
/// whole.
struct Expectation {
    std::string tensor;
    std::optional<std::vector<std::int64_t>> batch, rows, cols;
    std::string sha256;
    bool exact_nan = true;  ///< false: any NaN equals any NaN
};

/// One recorded operation. "" as an output name means the only (or main) output.
struct ManifestOp {
    std::string id, op, gpu;
    std::map<std::string, std::string> in;      ///< input name -> tensor name
    std::map<std::string, std::string> out;     ///< output name -> tensor name
    std::optional<Format> out_format;
    std::string kernel;
    std::vector<std::string> kernel_names;
    std::optional<CublasLtFields> cublaslt;
    Params params;
    std::map<std::string, Expectation> expect;  ///< by output name
};

/// A recorded computation, version 1. What it says is checked for form and for names that lead nowhere, not for shapes.
struct Manifest {
    std::filesystem::path path;
    std::string gpu;
    std::string software;  ///< JSON text, carried into reports
    std::map<std::string, TensorSource> tensors;
    std::map<std::string, std::filesystem::path> checkpoints;  ///< folders; NAME/KEY is a tensor of checkpoint NAME
    std::vector<ManifestOp> ops;

    /// Splits NAME/KEY at the first slash if NAME is a checkpoint; nullopt otherwise.
    std::optional<std::pair<std::string, std::string>> checkpoint_key(const std::string& tensor) const;
};

/// Reads a manifest; InputError "file: JSON pointer: reason" for anything malformed, NotModelled for an unknown GPU.
Manifest load_manifest(const std::filesystem::path& path);
/// The same from text; `path` names it in messages and is where relative tensor files start.
Manifest parse_manifest(std::string_view text, const std::filesystem::path& path);

}  // namespace bitreplay
