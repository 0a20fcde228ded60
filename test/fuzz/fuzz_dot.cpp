// One tensor-core instruction of any GPU on any operands equals the exact oracle.
#include <vector>

#include "arch/dot.hpp"
#include "test/arch/tensor_core_models.hpp"
#include "test/fuzz/fuzz.hpp"

using namespace bitreplay;

namespace {

struct Case {
    const DotRule* rule;
    oracle::TensorCore model;
};

std::vector<Case> all_rules() {
    std::vector<Case> out;
    for (const std::string& name : gpu_names()) {
        const Gpu& gpu = find_gpu(name);
        for (const DotRule& rule : gpu.dot) {
            const auto model = test::published_model(gpu.sm, rule);
            fuzz::require(model.has_value(), "every rule has a published model");
            out.push_back({&rule, *model});
        }
    }
    fuzz::require(out.size() > 50 && out.size() < 65536, "GPU files were found");
    return out;
}

std::uint64_t take_code(fuzz::Input& input, const Format& format) {
    const std::uint64_t all = (std::uint64_t{2} << (format.storage_bits() - 1)) - 1;
    const std::uint64_t padding = (std::uint64_t{1} << format.padding_bits) - 1;
    const int size = format.storage_bits();
    const std::uint64_t bits = size <= 8    ? input.take<std::uint8_t>()
                               : size <= 16 ? input.take<std::uint16_t>()
                               : size <= 32 ? input.take<std::uint32_t>()
                                            : input.take<std::uint64_t>();
    return bits & all & ~padding;
}

}  // namespace

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    static const std::vector<Case> rules = all_rules();
    fuzz::Input input(data, size);
    const auto& [rule, model] = rules[input.take<std::uint16_t>() % rules.size()];
    const Shape& shape = rule->shapes[input.below(rule->shapes.size())];
    const std::size_t k = 1 + input.below(static_cast<std::size_t>(shape.k));
    const std::uint64_t c = take_code(input, rule->types.c);
    const oracle::TensorCoreOracle exact(model, rule->types.a, rule->types.b);
    std::vector<oracle::Value> a(k), b(k);
    std::vector<Operand> unit_a(k), unit_b(k);
    for (std::size_t i = 0; i < k; ++i) {
        const std::uint64_t code_a = take_code(input, rule->types.a), code_b = take_code(input, rule->types.b);
        a[i] = exact.operand_a(code_a);
        b[i] = exact.operand_b(code_b);
        unit_a[i] = decode_operand(rule->types.a, rule->unit_a, code_a);
        unit_b[i] = decode_operand(rule->types.b, rule->unit_b, code_b);
    }
    fuzz::require(dot_add(*rule, unit_a, unit_b, c) == exact(a, b, c), "dot_add equals the oracle");
    return 0;
}
