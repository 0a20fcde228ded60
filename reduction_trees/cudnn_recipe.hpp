#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace bitreplay {

/// A generated attention kernel of cuDNN, and the calls that captures of it cover.
struct CudnnKernel {
    struct Range {
        std::int64_t least, most;
        bool holds(std::int64_t value) const noexcept { return value >= least && value <= most; }
    };
    std::string name;  ///< as in manifests: cudnn.flash_sm90
    std::string summary;
    std::vector<std::string> kernels;  ///< globs of CUDA kernel names
    std::vector<int> sm;               ///< compute capabilities
    std::string instruction_family;
    int instruction_k = 0;
    std::int64_t key_tile = 0;
    /// How a score becomes an exponent of two: once by scale·log2(e), or by scale and then, rounded, by log2(e).
    bool scale_twice = false;
    std::vector<std::int64_t> head_dims;
    Range queries{}, keys{};
    std::string evidence_level, evidence;
};

/// The built-in list, from reduction_trees/attention/cudnn.json.
const std::vector<CudnnKernel>& cudnn_kernels();
/// The kernel of that name, or nullptr.
const CudnnKernel* find_cudnn_kernel(std::string_view name);
/// The kernel that every one of these recorded CUDA kernel names is, or nullptr.
const CudnnKernel* match_cudnn_kernel(const std::vector<std::string>& kernel_names);

}  // namespace bitreplay
