#include <algorithm>
#include <string_view>
#include <tuple>

#include "arch/dot.hpp"
#include "emu/ops/gemm_kernel.hpp"
#include "formats/error.hpp"

namespace bitreplay {
namespace {

RecipeValues recorded_values(const OpRequest& request, const Recipe& recipe) {
    RecipeValues values;
    for (const RecipeParam& param : recipe.params) {
        if (!request.params.has(param.name)) continue;
        if (param.words.empty())
            values[param.name] = request.params.integer(param.name, 0, param.low, param.high);
        else
            values[param.name] = request.params.text(param.name, "");
    }
    // A kernel whose order depends on how the second operand lies in memory: the columns of a row-major b are strided.
    if (recipe.find_param("strided") != nullptr)
        values.emplace("strided", std::int64_t{request.in.contains("b") && request.input("b").cols() > 1});
    return values;
}

/// Whether a recipe's kernels multiply operands stored as `stored`.
bool fits_operands(const Recipe& recipe, const Format& stored) {
    if (recipe.operands.empty()) return !(stored == fp32);
    return std::any_of(recipe.operands.begin(), recipe.operands.end(), [&](const std::string& name) {
        const NamedFormat* row = find_format(name);
        return row != nullptr && operand_format(recipe, stored) == row->format;
    });
}

/// The kernel names must not tell of operands of another format.
void check_named_operands(const OpRequest& request, const Recipe& recipe, const Format& stored) {
    for (const std::string& kernel : request.kernel_names) {
        if (!any_glob_match(recipe.kernels, kernel)) continue;
        for (const auto& [glob, name] : recipe.named_operands)
            if (glob_match(glob, kernel) && !(find_format(name)->format == stored))
                request.not_modelled("kernel " + recipe.name + ": the kernel name " + kernel + " tells of " + name + " operands, these are " + std::string(named(stored).name));
    }
}

/// "algoId=66 computeType=COMPUTE_32F", for messages.
std::string algorithm_of(const CublasLtFields& log) {
    const auto compute = log.find("computeType");
    return "algoId=" + log.at("algoId").substr(0, 40) + (compute == log.end() ? "" : " computeType=" + compute->second.substr(0, 40));
}

/// The recipe of the recorded kernel: by the op's "kernel", its kernel names, or cuBLASLt's log alone.
const Recipe& recorded_recipe(const OpRequest& request, const Format& a) {
    if (!request.kernel.empty()) return find_recipe(request.kernel);
    if (const Recipe* recipe = match_recipe(request.kernel_names); recipe != nullptr) return *recipe;
    if (!request.kernel_names.empty()) {
        std::string names;
        for (const std::string& name : request.kernel_names)
            names += (names.empty() ? "" : " + ") + name.substr(0, 120);
        request.not_modelled("no recipe for the recorded kernel " + names);
    }
    if (!request.cublaslt) request.not_modelled("no kernel was recorded");
    const std::string algorithm = "cuBLASLt's " + algorithm_of(*request.cublaslt);
    std::vector<const Recipe*> found = recipes_of(*request.cublaslt);
    std::erase_if(found, [&](const Recipe* recipe) { return !fits_operands(*recipe, a); });
    if (found.empty()) request.not_modelled(algorithm + " is not modelled");
    if (found.size() > 1) {
        std::string names;
        for (const Recipe* recipe : found) names += (names.empty() ? "" : ", ") + recipe->name;
        request.not_modelled(algorithm + " can be any of " + names + ": record the kernel names");
    }
    return *found.front();
}

Format accumulator_of(const Recipe& recipe, const Format& a) {
    if (const NamedFormat* row = find_format(recipe.accumulator); row != nullptr) return row->format;
    return a == fp64 ? fp64 : fp32;
}

/// The deepest instruction of the recipe's families, or the one whose depth the recipe fixes.
std::pair<const DotRule*, int> find_instruction(const OpRequest& request,
                                                const GemmKernel& kernel,
                                                const DotTypes& types) {
    const auto fixed = kernel.values.find("instruction_k");
    for (const std::string& family : kernel.recipe->families) {
        if (family == "cuda_core")
            if (const DotRule* rule = cuda_core_rule(types.a, types.b)) return {rule, 1};
        const DotRule* best = nullptr;
        int depth = 0;
        for (const DotRule& rule : request.gpu.dot) {
            if (rule.family != family || !(rule.types == types)) continue;
            for (const Shape& shape : rule.shapes) {
                if (fixed != kernel.values.end() ? shape.k != std::get<std::int64_t>(fixed->second) : shape.k <= depth)
                    continue;
                best = &rule;
                depth = shape.k;
            }
        }
        if (best != nullptr) return {best, depth};
    }
    request.not_modelled("gpu " + request.gpu.name + " has no " + std::string(named(types.a).name) + " x " +
                         std::string(named(types.b).name) + " instruction for kernel " + kernel.recipe->name);
}

}  // namespace

Format operand_format(const Recipe& recipe, const Format& stored) {
    const bool rounds = stored == fp32 && std::find(recipe.operands.begin(), recipe.operands.end(), "tf32") != recipe.operands.end();
    return rounds ? tf32 : stored;
}

GemmKernel choose_gemm_kernel(const OpRequest& request, const Format& a, const Format& b, std::int64_t k) {
    GemmKernel kernel{};
    kernel.recipe = &recorded_recipe(request, a);
    const Recipe& recipe = *kernel.recipe;
    for (const Format& stored : {a, b}) {
        if (!fits_operands(recipe, stored))
            request.not_modelled("kernel " + recipe.name + " with " + std::string(named(stored).name) + " operands");
        check_named_operands(request, recipe, stored);
    }
    if (recipe.families.empty()) request.not_modelled("kernel " + recipe.name + " is not a matrix product");
    const CublasLtFields* log = request.cublaslt ? &*request.cublaslt : nullptr;
    if (log != nullptr && !recipe.algorithms.empty() && !fits_log(recipe, *log))
        request.not_modelled("kernel " + recipe.name + " under cuBLASLt's " + algorithm_of(*log));
    kernel.values = resolve(recipe, recorded_values(request, recipe), request.kernel_names, a.storage_bits(), log, request.in.contains("bias") || request.in.contains("c"));
    const Format accumulator = accumulator_of(recipe, a);
    const DotTypes types{
        .d = accumulator, .a = operand_format(recipe, a), .b = operand_format(recipe, b), .c = accumulator};
    std::tie(kernel.rule, kernel.instruction_k) = find_instruction(request, kernel, types);
    kernel.plan = make_plan(recipe, kernel.values, k);
    if (recipe.plus_zero && !request.in.contains("c") && !request.in.contains("bias"))
        kernel.plan = {.kind = Plan::Kind::merge, .ranges = {}, .parts = {std::move(kernel.plan)}, .merge = {.from_zero = true}};
    return kernel;
}

Plan plan_of(const GemmKernel& kernel, const OutputRegion& region, std::int64_t k) {
    return kernel.recipe->segments ? make_plan(*kernel.recipe, region.values, k) : kernel.plan;
}

}  // namespace bitreplay
