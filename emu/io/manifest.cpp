#include "emu/io/manifest.hpp"

#include <algorithm>
#include <bit>
#include <limits>
#include <set>

#include "arch/gpu.hpp"
#include "formats/convert.hpp"
#include "formats/strict_json.hpp"

namespace bitreplay {
namespace {

using detail::JsonReader;

constexpr std::int64_t max_extent = std::int64_t{1} << 40;

Format read_format(const JsonReader& reader) {
    const NamedFormat* row = find_format(reader.as_text());
    if (row == nullptr) reader.fail("unknown dtype");
    return row->format;
}

std::vector<std::int64_t> read_integers(const JsonReader& reader) {
    std::vector<std::int64_t> out;
    for (const JsonReader& item : reader.elements()) out.push_back(item.as_integer(0, max_extent));
    return out;
}

SyntheticSpec read_synthetic(JsonReader& reader) {
    SyntheticSpec spec;
    spec.generator = static_cast<Generator>(reader.choice("synthetic", {"splitmix64-ih4", "splitmix64-u53"}));
    spec.seed = reader.at("seed").as_unsigned();
    spec.exp2 = static_cast<int>(reader.integer("exp2", -134, 125));
    spec.format = read_format(reader.at("dtype"));
    spec.shape = read_integers(reader.at("shape"));
    if (reader.has("plus") && spec.generator == Generator::u53) reader.at("plus").fail("only with splitmix64-ih4");
    if (reader.has("plus")) spec.plus = static_cast<std::uint32_t>(convert(fp64, fp32, std::bit_cast<std::uint64_t>(reader.at("plus").as_real())));
    if (reader.has("mirror")) spec.mirror = reader.choice("mirror", {"even", "odd"}) == 0 ? Mirror::even : Mirror::odd;
    return spec;
}

TensorSource read_source(JsonReader reader, const std::filesystem::path& folder) {
    TensorSource source;
    if (reader.has("synthetic")) {
        source.synthetic = read_synthetic(reader);
    } else {
        source.file = folder / reader.text("file");
        source.key = reader.text("key");
        if (reader.has("dtype")) source.dtype = read_format(reader.at("dtype"));
    }
    reader.finish();
    return source;
}

std::filesystem::path read_checkpoint(const std::string& name, JsonReader reader, const std::filesystem::path& folder) {
    if (name.empty() || name.find('/') != std::string::npos) reader.fail("the name of a checkpoint must not be empty or hold a slash");
    const std::filesystem::path out = folder / reader.text("folder");
    reader.finish();
    return out;
}

Expectation read_expectation(JsonReader reader) {
    Expectation out;
    if (reader.has("exact_nan")) out.exact_nan = reader.boolean("exact_nan");
    if (reader.has("sha256")) {
        const JsonReader item = reader.at("sha256");
        out.sha256 = item.as_text();
        const bool hex = std::all_of(out.sha256.begin(), out.sha256.end(), [](char ch) { return (ch >= '0' && ch <= '9') || (ch >= 'a' && ch <= 'f'); });
        if (out.sha256.size() != 64 || !hex) item.fail("must be 64 lower-case hexadecimal digits");
        if (!out.exact_nan) reader.fail("exact_nan cannot be false for a sha256");
        if (reader.has("tensor")) reader.fail("has a tensor and a sha256: give one of them");
    } else {
        out.tensor = reader.text("tensor");
        if (reader.has("batch")) out.batch = read_integers(reader.at("batch"));
        if (reader.has("rows")) out.rows = read_integers(reader.at("rows"));
        if (reader.has("cols")) out.cols = read_integers(reader.at("cols"));
    }
    reader.finish();
    return out;
}

/// A string stands for the only output, an object names several.
std::map<std::string, std::string> read_names(JsonReader reader) {
    if (reader.value().is_string()) return {{"", reader.as_text()}};
    std::map<std::string, std::string> out;
    for (const auto& [name, item] : reader.members()) out[name] = item.as_text();
    return out;
}

ManifestOp read_op(JsonReader reader, const std::string& default_gpu) {
    ManifestOp op;
    op.id = reader.text("id");
    op.op = reader.text("op");
    op.gpu = reader.has("gpu") ? reader.text("gpu") : default_gpu;
    JsonReader in = reader.at("in");
    for (const auto& [name, item] : in.members()) op.in[name] = item.as_text();
    if (reader.has("out")) op.out = read_names(reader.at("out"));
    if (reader.has("out_dtype")) op.out_format = read_format(reader.at("out_dtype"));
    if (reader.has("kernel")) op.kernel = reader.text("kernel");
    if (reader.has("kernel_names"))
        for (const JsonReader& item : reader.at("kernel_names").elements()) op.kernel_names.push_back(item.as_text());
    if (reader.has("cublaslt")) {
        const JsonReader line = reader.at("cublaslt");
        try {
            op.cublaslt = parse_cublaslt_log(line.as_text());
        } catch (const InputError& error) {
            line.fail(error.what());
        }
    }
    if (reader.has("params")) {
        const JsonReader params = reader.at("params");
        params.require_object();
        op.params = Params::parse(params.value().dump(), reader.file(), params.pointer());
    }
    if (reader.has("expect")) {
        JsonReader expect = reader.at("expect");
        if (expect.has("tensor") || expect.has("sha256"))
            op.expect[""] = read_expectation(expect);
        else
            for (const auto& [name, item] : expect.members()) op.expect[name] = read_expectation(item);
    }
    reader.finish();
    return op;
}

void check_gpu(const std::string& name, const std::filesystem::path& path) {
    if (name.ends_with(".json")) detail::input_error(path.string(), "/gpu", "must be a name, not a file");
    try {
        find_gpu(name);
    } catch (const NotModelled& error) {
        throw NotModelled(path.string() + ": " + error.what());
    }
}

/// True if some tensor is called prefix + something: `weights` of a model block names its tensors by a prefix.
bool is_prefix(const Manifest& manifest, const std::string& prefix) {
    const auto next = manifest.tensors.lower_bound(prefix);
    return next != manifest.tensors.end() && next->first.starts_with(prefix);
}

void check_names(const Manifest& manifest, const std::vector<JsonReader>& readers) {
    std::set<std::string> ids, outputs;
    for (std::size_t i = 0; i < manifest.ops.size(); ++i) {
        const ManifestOp& op = manifest.ops[i];
        if (!ids.insert(op.id).second) readers[i].fail("the id \"" + op.id + "\" is taken");
        for (const auto& [name, tensor] : op.in)
            if (!manifest.tensors.contains(tensor) && !outputs.contains(tensor) && !manifest.checkpoint_key(tensor) &&
                !(name == "weights" && is_prefix(manifest, tensor)))
                readers[i].fail("input \"" + name + "\": no tensor and no earlier output is called \"" + tensor + "\"");
        for (const auto& [name, tensor] : op.out)
            if (!outputs.insert(tensor).second) readers[i].fail("the output name \"" + tensor + "\" is taken");
        for (const auto& [name, expectation] : op.expect)
            if (expectation.sha256.empty() && !manifest.tensors.contains(expectation.tensor))
                readers[i].fail("expect: no tensor is called \"" + expectation.tensor + "\"");
    }
}

}  // namespace

std::optional<std::pair<std::string, std::string>> Manifest::checkpoint_key(const std::string& tensor) const {
    const std::size_t slash = tensor.find('/');
    if (slash == std::string::npos || !checkpoints.contains(tensor.substr(0, slash))) return std::nullopt;
    return std::pair(tensor.substr(0, slash), tensor.substr(slash + 1));
}

Manifest parse_manifest(std::string_view text, const std::filesystem::path& path) {
    const nlohmann::json document = detail::parse_json(text, path.string());
    JsonReader reader(document, path.string());
    Manifest manifest;
    manifest.path = path;
    const JsonReader version = reader.at("bitreplay");
    if (version.as_integer(0, std::numeric_limits<std::int32_t>::max()) != 1) version.fail("this program reads manifests of version 1");
    manifest.gpu = reader.text("gpu");
    check_gpu(manifest.gpu, path);
    if (reader.has("software")) {
        const JsonReader software = reader.at("software");
        software.require_object();
        manifest.software = software.value().dump();
    }
    JsonReader tensors = reader.at("tensors");
    for (const auto& [name, item] : tensors.members()) manifest.tensors[name] = read_source(item, path.parent_path());
    if (reader.has("checkpoints")) {
        JsonReader checkpoints = reader.at("checkpoints");
        for (auto& [name, item] : checkpoints.members()) manifest.checkpoints[name] = read_checkpoint(name, item, path.parent_path());
    }
    for (const auto& [name, source] : manifest.tensors)
        if (const auto key = manifest.checkpoint_key(name)) tensors.at(name).fail("names a tensor of the checkpoint \"" + key->first + "\"");
    const std::vector<JsonReader> ops = reader.at("ops").elements();
    for (const JsonReader& item : ops) {
        manifest.ops.push_back(read_op(item, manifest.gpu));
        check_gpu(manifest.ops.back().gpu, path);
    }
    reader.finish();
    check_names(manifest, ops);
    return manifest;
}

Manifest load_manifest(const std::filesystem::path& path) {
    return parse_manifest(detail::read_text(path), path);
}

}  // namespace bitreplay
