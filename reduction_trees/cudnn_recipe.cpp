#include "reduction_trees/cudnn_recipe.hpp"

#include <algorithm>

#include "formats/error.hpp"
#include "formats/strict_json.hpp"
#include "reduction_trees/embedded.hpp"
#include "reduction_trees/recipe.hpp"

namespace bitreplay {
namespace {

using detail::JsonReader;

constexpr std::int64_t most = std::int64_t{1} << 20;

std::vector<std::int64_t> integers(JsonReader& reader, const std::string& key) {
    std::vector<std::int64_t> out;
    for (const JsonReader& item : reader.at(key).elements()) out.push_back(item.as_integer(1, most));
    return out;
}

CudnnKernel::Range read_range(JsonReader& reader, const std::string& key) {
    const std::vector<std::int64_t> ends = integers(reader, key);
    if (ends.size() != 2 || ends[0] > ends[1]) reader.at(key).fail("must be [least, most]");
    return {ends[0], ends[1]};
}

CudnnKernel read_kernel(JsonReader reader) {
    CudnnKernel kernel;
    kernel.name = reader.text("name");
    kernel.summary = reader.text("summary");
    for (const JsonReader& item : reader.at("kernels").elements()) kernel.kernels.push_back(item.as_text());
    for (const std::int64_t sm : integers(reader, "sm")) kernel.sm.push_back(static_cast<int>(sm));
    kernel.instruction_family = reader.text("instruction_family");
    kernel.instruction_k = static_cast<int>(reader.integer("instruction_k", 1, 64));
    kernel.key_tile = reader.integer("key_tile", 8, 4096);
    if (kernel.key_tile % 8 != 0) reader.at("key_tile").fail("must be a multiple of 8");
    kernel.scale_twice = reader.boolean("scale_twice");
    kernel.head_dims = integers(reader, "head_dims");
    kernel.queries = read_range(reader, "queries");
    kernel.keys = read_range(reader, "keys");
    JsonReader evidence = reader.at("evidence");
    evidence.choice("level", {"measured", "published", "unverified"});
    kernel.evidence_level = evidence.text("level");
    kernel.evidence = evidence.text("source");
    evidence.finish();
    reader.finish();
    return kernel;
}

}  // namespace

const std::vector<CudnnKernel>& cudnn_kernels() {
    static const std::vector<CudnnKernel> kernels = [] {
        const std::string file = "reduction_trees/attention/cudnn.json";
        const auto all = detail::embedded_attention();
        const auto found = std::find_if(all.begin(), all.end(), [](const auto& entry) { return entry.first == "cudnn"; });
        if (found == all.end()) throw InputError(file + " is not part of this build");
        const nlohmann::json document = detail::parse_json(found->second, file);
        JsonReader reader(document, file);
        std::vector<CudnnKernel> out;
        for (const JsonReader& item : reader.at("kernels").elements()) out.push_back(read_kernel(item));
        reader.finish();
        return out;
    }();
    return kernels;
}

const CudnnKernel* find_cudnn_kernel(std::string_view name) {
    for (const CudnnKernel& kernel : cudnn_kernels())
        if (kernel.name == name) return &kernel;
    return nullptr;
}

const CudnnKernel* match_cudnn_kernel(const std::vector<std::string>& kernel_names) {
    for (const CudnnKernel& kernel : cudnn_kernels()) {
        const auto is_this = [&](const std::string& name) {
            return any_glob_match(kernel.kernels, name);
        };
        if (!kernel_names.empty() && std::all_of(kernel_names.begin(), kernel_names.end(), is_this)) return &kernel;
    }
    return nullptr;
}

}  // namespace bitreplay
