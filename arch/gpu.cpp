#include "arch/gpu.hpp"

#include <algorithm>
#include <deque>
#include <mutex>

#include "arch/embedded.hpp"
#include "formats/strict_json.hpp"

namespace bitreplay {
namespace {

using detail::JsonReader;

Evidence read_evidence(JsonReader reader) {
    Evidence out{};
    out.level = static_cast<Evidence::Level>(reader.choice("level", {"measured", "published", "unverified"}));
    out.source = reader.text("source");
    reader.finish();
    return out;
}

DotStep read_step(JsonReader reader) {
    DotStep step;
    if (reader.has("add")) {
        reader.choice("add", {"c"});
        reader.choice("round", {"rne"});
        step.kind = DotStep::Kind::add_c;
        reader.finish();
        return step;
    }
    step.from = static_cast<DotStep::From>(reader.choice("from", {"c", "zero", "last"}));
    if (reader.has("fma")) {
        reader.choice("fma", {"k"});
        step.kind = DotStep::Kind::fma_chain;
        reader.finish();
        return step;
    }
    step.select = static_cast<DotStep::Select>(reader.choice("take", {"all", "k%4<2", "k%4>=2"}));
    step.block = static_cast<int>(reader.integer("block", 1, 64));
    step.align_bits = static_cast<int>(reader.integer("align_bits", 1, 40));
    step.rounding = reader.choice("round", {"rne", "rz"}) == 0 ? Rounding::nearest_even : Rounding::toward_zero;
    step.keep = static_cast<int>(reader.integer("keep", 1, 23));
    reader.finish();
    return step;
}

Shape read_shape(const JsonReader& reader) {
    std::string text = reader.as_text();
    const bool any_n = text.find("nN") != std::string::npos;
    if (any_n) text.replace(text.find("nN"), 2, "n8");
    try {
        Shape shape = parse_instruction("mma." + text + ".f32.f32.f32").shape;
        if (any_n) shape.n = 0;
        return shape;
    } catch (const InputError&) {
        reader.fail("not a shape such as m16n8k16 or m64nNk16");
    }
}

DotTypes read_types(const JsonReader& reader) {
    try {
        return parse_instruction("mma.m1n1k1." + reader.as_text()).types;
    } catch (const InputError&) {
        reader.fail("not a list of types such as f32.bf16.bf16.f32");
    }
}

/// The types that the steps' integer arithmetic holds: products of operands with at most 10 fraction bits and an fp32 or fp16 result, or fp64
/// throughout.
bool steps_fit(const DotRule& rule) {
    const Format &d = rule.types.d, &a = rule.types.a, &b = rule.types.b, &c = rule.types.c;
    const bool wide = d == fp64;
    if (c != d || (!wide && d != fp32 && d != fp16)) return false;
    if (wide && (a != fp64 || b != fp64)) return false;
    const bool narrow = std::max(rule.unit_a.fraction_bits, rule.unit_b.fraction_bits) <= tf32.fraction_bits;
    return std::all_of(rule.steps.begin(), rule.steps.end(), [&](const DotStep& step) {
        if (step.kind == DotStep::Kind::fma_chain) return wide;
        return !wide && narrow && step.keep <= d.fraction_bits;
    });
}

/// One JSON rule covers several type combinations; each becomes a DotRule.
void read_rules(JsonReader reader, std::vector<DotRule>& out) {
    DotRule rule{};
    rule.family = reader.text("family");
    for (const JsonReader& item : reader.at("shapes").elements()) rule.shapes.push_back(read_shape(item));
    for (const JsonReader& item : reader.at("steps").elements()) rule.steps.push_back(read_step(item));
    if (rule.shapes.empty()) reader.fail("\"shapes\" is empty");
    if (rule.steps.empty()) reader.fail("\"steps\" is empty");
    const Format* unit = nullptr;
    if (reader.has("unit")) {
        const JsonReader item = reader.at("unit");
        const NamedFormat* row = find_format(item.as_text());
        if (row == nullptr) item.fail("unknown format");
        unit = &row->format;
    }
    rule.evidence = read_evidence(reader.at("evidence"));
    const std::vector<JsonReader> types = reader.at("types").elements();
    if (types.empty()) reader.fail("\"types\" is empty");
    for (const JsonReader& item : types) {
        rule.types = read_types(item);
        rule.unit_a = unit != nullptr ? *unit : rule.types.a;
        rule.unit_b = unit != nullptr ? *unit : rule.types.b;
        if (!steps_fit(rule)) item.fail("the steps do not fit these types");
        for (const DotRule& other : out)
            if (other.family == rule.family && other.types == rule.types)
                for (const Shape& shape : other.shapes)
                    if (std::find(rule.shapes.begin(), rule.shapes.end(), shape) != rule.shapes.end())
                        item.fail("this instruction has two rules");
        out.push_back(rule);
    }
    reader.finish();
}

Gpu read_gpu(std::string_view text, const std::string& file) {
    const nlohmann::json document = detail::parse_json(text, file);
    JsonReader reader(document, file);
    Gpu gpu;
    gpu.name = reader.text("name");
    gpu.title = reader.text("title");
    for (const JsonReader& item : reader.at("aliases").elements()) gpu.aliases.push_back(item.as_text());
    gpu.sm = static_cast<int>(reader.integer("sm", 10, 999));
    gpu.multiprocessors = static_cast<int>(reader.integer("multiprocessors", 1, 4096));
    gpu.threads_per_multiprocessor = static_cast<int>(reader.integer("threads_per_multiprocessor", 32, 4096));
    if (reader.has("mufu")) {
        JsonReader item = reader.at("mufu");
        gpu.mufu = {item.text("table"), read_evidence(item.at("evidence"))};
        item.finish();
    }
    for (const JsonReader& item : reader.at("dot").elements()) read_rules(item, gpu.dot);
    reader.finish();
    return gpu;
}

std::string lower(std::string_view text) {
    std::string out(text);
    for (char& ch : out)
        if (ch >= 'A' && ch <= 'Z') ch = static_cast<char>(ch - 'A' + 'a');
    return out;
}

const std::vector<Gpu>& built_in() {
    static const std::vector<Gpu> gpus = [] {
        std::vector<Gpu> out;
        for (const auto& [stem, text] : detail::embedded_gpus()) out.push_back(read_gpu(text, "arch/gpus/" + std::string(stem) + ".json"));
        std::sort(out.begin(), out.end(), [](const Gpu& x, const Gpu& y) { return x.name < y.name; });
        return out;
    }();
    return gpus;
}

bool fits(const Shape& rule, const Shape& asked) noexcept {
    if (rule.n == 0) return rule.m == asked.m && rule.k == asked.k && asked.n % 8 == 0 && asked.n <= 256;
    return rule == asked;
}

}  // namespace

const DotRule& Gpu::dot_rule(const Instruction& instruction) const {
    for (const DotRule& rule : dot)
        if (rule.family == instruction.family && rule.types == instruction.types &&
            std::any_of(rule.shapes.begin(), rule.shapes.end(), [&](const Shape& s) { return fits(s, instruction.shape); }))
            return rule;
    throw NotModelled("gpu " + name + ": instruction " + to_string(instruction) + " is not modelled");
}

const DotRule* Gpu::find_dot_rule(std::string_view family, const DotTypes& types, int k) const noexcept {
    for (const DotRule& rule : dot)
        if (rule.family == family && rule.types == types &&
            std::any_of(rule.shapes.begin(), rule.shapes.end(), [&](const Shape& s) { return s.k == k; }))
            return &rule;
    return nullptr;
}

std::vector<std::string> gpu_names() {
    std::vector<std::string> out;
    for (const Gpu& gpu : built_in()) out.push_back(gpu.name);
    return out;
}

const Gpu& find_gpu(std::string_view name) {
    if (name.ends_with(".json")) {
        static std::mutex mutex;
        static std::deque<Gpu> loaded;  // never moves: callers keep references
        const std::lock_guard lock(mutex);
        return loaded.emplace_back(load_gpu_file(name));
    }
    const std::string key = lower(name);
    for (const Gpu& gpu : built_in())
        if (gpu.name == key || std::find(gpu.aliases.begin(), gpu.aliases.end(), key) != gpu.aliases.end()) return gpu;
    std::string known;
    for (const Gpu& gpu : built_in()) known += " " + gpu.name;
    throw NotModelled("gpu: unknown GPU \"" + detail::printable(name, 60) + "\"; known:" + known);
}

Gpu load_gpu_file(const std::filesystem::path& path) {
    return read_gpu(detail::read_text(path), path.string());
}

std::string_view gpu_json(std::string_view name) {
    const std::string& canonical = find_gpu(name).name;
    for (const auto& [stem, text] : detail::embedded_gpus())
        if (stem == canonical) return text;
    return {};
}

}  // namespace bitreplay
