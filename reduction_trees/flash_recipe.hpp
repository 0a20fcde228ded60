#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace bitreplay {

/// Query rows and keys that one thread block of a flash-attention kernel handles at a time.
struct FlashTile {
    std::int64_t query, key;
    bool operator==(const FlashTile&) const = default;
};

/// A build of the FlashAttention-2 forward kernels: who compiled them, and how.
struct FlashBuild {
    struct Evidence {
        std::vector<int> sm;
        std::string level, source;  ///< measured, published or unverified; and by what
    };
    std::string name;  ///< as in manifests: torch.flash2
    std::string summary;
    std::vector<std::string> kernels, companions;  ///< globs of CUDA kernel names
    bool fast_math = false;  ///< flush to zero, approximate division and logarithm, contraction
    std::vector<Evidence> evidence;
};

/// What every build shares: the tile sizes, which depend on head dimension and compute capability, and the way the keys
/// of one query are split between thread blocks. Head dimensions below are those of the kernels (head_dim()).
class FlashRecipe {
public:
    std::vector<FlashBuild> builds;
    std::string instruction_family;
    int instruction_k = 0;
    std::int64_t threads = 0;     ///< of the kernel that combines the parts
    std::int64_t max_splits = 0;
    std::int64_t blocks_per_multiprocessor = 0;

    /// The kernel's head dimension for a tensor's: the next larger one that was compiled. Throws NotModelled beyond the last.
    std::int64_t head_dim(std::int64_t tensor_head_dim) const;
    /// flash_fwd_kernel; `causal` as the host code hands it to the kernel. Throws NotModelled for other GPUs.
    FlashTile forward_tile(int sm, std::int64_t head_dim, bool causal) const;
    /// flash_fwd_splitkv_kernel.
    FlashTile split_tile(std::int64_t head_dim) const;
    /// Rows of the output that one block of the combining kernel handles.
    std::int64_t combine_rows(std::int64_t head_dim) const;

    struct ForwardRow {
        std::vector<int> sm;
        std::vector<std::int64_t> head_dims;
        std::vector<bool> causal;
        FlashTile tile;
    };
    struct SplitRow {
        std::vector<std::int64_t> head_dims;
        FlashTile tile;
    };
    struct CombineRow {
        std::vector<std::int64_t> head_dims;
        std::int64_t rows;
    };
    std::vector<std::int64_t> head_dims;
    std::vector<ForwardRow> forward;
    std::vector<SplitRow> split;
    std::vector<CombineRow> combine;
};

/// The built-in recipe, from reduction_trees/attention/flash2.json.
const FlashRecipe& flash_recipe();
/// The build of that name, or nullptr.
const FlashBuild* find_flash_build(std::string_view name);
/// The build whose kernels a list of recorded CUDA kernel names runs: one of them must match `kernels`, every other one
/// `kernels` or `companions`. nullptr if there is none.
const FlashBuild* match_flash_build(const std::vector<std::string>& kernel_names);

/// What the name of a recorded forward kernel says: Flash_fwd_kernel_traits<head_dim, query, key, …>.
struct FlashKernelName {
    bool split, combine;
    std::int64_t head_dim;
    FlashTile tile;
};
/// Reads such a name; head_dim is 0 if it is not one.
FlashKernelName parse_flash_kernel_name(std::string_view name);

}  // namespace bitreplay
