// Candidates of matrix products: every recipe with every combination of its parameters, as the recipe's data describe
// them.

#include <algorithm>
#include <set>

#include "emu/identify_private.hpp"
#include "emu/ops/gemm_kernel.hpp"
#include "formats/error.hpp"

namespace bitreplay::detail {
namespace {

using Values = std::vector<RecipeValue>;

/// The values of a parameter that are tried, the plainest first.
Values values_of(const Recipe& recipe, const RecipeParam& param, const IdentifyOptions& options, int element_bits) {
    if (const auto fixed = options.fixed.find(param.name); fixed != options.fixed.end()) {
        const std::string& text = fixed->second;
        if (text.starts_with('"')) return {text.substr(1, text.size() - 2)};
        return {std::int64_t{std::stoll(text)}};
    }
    Values out;
    // An option that numbers variants; what it stands for is not chosen beside it.
    for (const RecipeTable& table : recipe.tables) {
        if (table.param != param.name) continue;
        if (param.fallback) out.push_back(*param.fallback);
        for (const RecipeTable::Row& row : table.rows)
            for (const std::int64_t value : row.values) out.emplace_back(value);
        return out;
    }
    if (param.fallback_bits != 0) out.emplace_back(param.fallback_bits / element_bits);
    if (param.fallback) out.push_back(*param.fallback);
    const auto add = [&](RecipeValue value) {
        if (std::find(out.begin(), out.end(), value) == out.end()) out.push_back(std::move(value));
    };
    for (const std::string& word : param.words) add(word);
    if (!param.words.empty()) return out;
    const bool counts = std::any_of(recipe.layers.begin(), recipe.layers.end(), [&](const RecipeLayer& layer) {
        return layer.parts == param.name;
    });
    const bool deals = std::any_of(recipe.layers.begin(), recipe.layers.end(), [&](const RecipeLayer& layer) {
        return layer.parts == param.name && layer.kind == RecipeLayer::Kind::interleave;
    });
    constexpr std::int64_t several = 128;                 // a parameter with no more values than this takes all of them
    constexpr std::int64_t smallest = 16, largest = 256;  // sizes of tiles in elements of k
    if (counts && !deals) {
        for (std::int64_t n = param.low; n <= std::min(param.high, options.max_parts); ++n) add(n);
    } else if (counts) {
        for (std::int64_t n = 1; n <= std::min(param.high, options.max_parts); n *= 2)
            if (n >= param.low) add(n);
    } else if (param.high - param.low < several) {
        for (std::int64_t n = param.low; n <= param.high; ++n) add(n);
    } else {
        for (std::int64_t n = smallest; n <= std::min(param.high, largest); n *= 2)
            if (n >= param.low) add(n);
    }
    return out;
}

/// Calls visit(values) for every combination.
void combine(const std::vector<const RecipeParam*>& params,
             const std::vector<Values>& values,
             const std::function<void(const RecipeValues&)>& visit) {
    std::vector<std::size_t> at(params.size(), 0);
    while (true) {
        RecipeValues chosen;
        for (std::size_t i = 0; i < params.size(); ++i) chosen[params[i]->name] = values[i][at[i]];
        visit(chosen);
        std::size_t i = 0;
        for (; i < params.size(); ++i) {
            if (++at[i] < values[i].size()) break;
            at[i] = 0;
        }
        if (i == params.size()) return;
    }
}

/// The plan without differences that have no effect: ranges that the walk passes without a break, and roundings to the
/// accumulator's own format.
Plan plainest(Plan plan, std::int64_t step, bool result_is_accumulator) {
    if (plan.kind == Plan::Kind::walk) {
        std::vector<Range> ranges;
        for (const Range& range : plan.ranges) {
            const bool goes_on = !ranges.empty() && ranges.back().end == range.begin &&
                                 (ranges.back().end - ranges.back().begin) % step == 0;
            if (goes_on)
                ranges.back().end = range.end;
            else
                ranges.push_back(range);
        }
        plan.ranges = std::move(ranges);
    }
    if (plan.kind == Plan::Kind::merge && result_is_accumulator)
        plan.merge.parts = plan.merge.sums = Merge::Precision::accumulator;
    for (Plan& part : plan.parts) part = plainest(std::move(part), step, result_is_accumulator);
    return plan;
}

std::string shortened(const std::string& text) {
    constexpr std::size_t line = 110;
    return text.size() <= line ? text : text.substr(0, line) + " ...";
}

/// Lists what can compute a request x [M, K], w [N, K].
class GemmCandidates {
public:
    GemmCandidates(const OpRequest& request, const IdentifyOptions& options)
        : request_(request), options_(options), x_(request.input("x")), w_(request.input("w")) {}

    void add_all(CandidateList& list) const {
        const auto kinds = gpu_kinds(options_, [](const Gpu& gpu) {
            std::string out;
            for (const DotRule& rule : gpu.dot) {
                out += rule.family + " " + signature(rule);
                for (const Shape& shape : rule.shapes) out += " " + std::to_string(shape.k);
            }
            return out;
        });
        for (const Recipe& recipe : recipes())
            if (options_.kernel.empty() || options_.kernel == recipe.name) add_recipe(recipe, kinds, list);
    }

private:
    static std::string signature(const DotRule& rule) {
        std::string out = describe_steps(rule);
        for (const Format* format :
             {&rule.types.d, &rule.types.a, &rule.types.b, &rule.types.c, &rule.unit_a, &rule.unit_b})
            out += " " + std::string(named(*format).name);
        return out;
    }

    void add_recipe(const Recipe& recipe, const std::vector<std::vector<std::string>>& kinds, CandidateList& list) const {
        if (recipe.families.empty()) return;
        for (const auto& [name, value] : options_.fixed)
            if (recipe.find_param(name) == nullptr) return;
        const int element_bits = x_.format().storage_bits();
        // What does not touch the order: the instruction, and what only says how an addend enters or which GELU follows.
        const auto shapes = [&](const RecipeParam& param) {
            const auto decides = [&](const RecipeValues& when) { return when.contains(param.name); };
            const bool in_layers = std::any_of(recipe.layers.begin(), recipe.layers.end(), [&](const RecipeLayer& layer) {
                return decides(layer.when) || layer.parts == param.name || layer.size == param.name || layer.buffers == param.name;
            });
            const bool in_epilogue =
                std::any_of(recipe.bias.begin(), recipe.bias.end(), [&](const RecipeBias& bias) { return decides(bias.when); }) ||
                std::any_of(recipe.addend.begin(), recipe.addend.end(), [&](const RecipeAddend& addend) { return decides(addend.when); }) ||
                std::any_of(recipe.gelu.begin(), recipe.gelu.end(), decides) ||
                std::any_of(recipe.gelu_in_kernel.begin(), recipe.gelu_in_kernel.end(), decides);
            return param.name != "instruction_k" && (in_layers || !in_epilogue);
        };
        const bool has_epilogue = request_.in.contains("bias") || request_.in.contains("c");
        // The launch of a kernel with segments, which decides what its tiles share, is taken as given.
        const auto of_launch = [&](const RecipeParam& param) {
            if (!recipe.segments || options_.fixed.contains(param.name)) return false;
            const RecipeSegments& names = *recipe.segments;
            for (const std::string* name : {&names.parts, &names.tile_m, &names.tile_n, &names.ctas, &names.cluster_m, &names.cluster_n,
                                            &names.swizzle, &names.along_k, &names.workspace})
                if (*name == param.name) return true;
            return false;
        };
        std::vector<const RecipeParam*> shape_params, other_params;
        std::vector<Values> shape_values, other_values;
        const auto follows = [&](const RecipeParam& param) {
            return std::any_of(recipe.tables.begin(), recipe.tables.end(), [&](const RecipeTable& table) {
                return std::any_of(table.rows.begin(), table.rows.end(), [&](const RecipeTable::Row& row) { return row.set.contains(param.name); });
            });
        };
        for (const RecipeParam& param : recipe.params) {
            if (follows(param)) continue;
            const bool shaping = shapes(param), given = of_launch(param);
            if (given && !param.fallback) return;
            Values values = given ? Values{*param.fallback} : values_of(recipe, param, options_, element_bits);
            if (!shaping && !has_epilogue && param.name != "instruction_k") values.resize(1);
            (shaping ? shape_params : other_params).push_back(&param);
            (shaping ? shape_values : other_values).push_back(std::move(values));
        }
        std::vector<RecipeValues> distinct;
        std::set<std::string> seen;
        combine(shape_params, shape_values, [&](const RecipeValues& values) {
            try {
                const Plan plan = make_plan(recipe, resolve(recipe, values, {}, element_bits), x_.cols());
                if (seen.insert(to_string(plan)).second) distinct.push_back(values);
            } catch (const NotModelled&) {
            } catch (const InputError&) {  // values that exclude each other
            }
        });
        combine(other_params, other_values, [&](const RecipeValues& more) {
            for (const auto& kind : kinds)
                for (const RecipeValues& order : distinct) {
                    RecipeValues values = order;
                    values.insert(more.begin(), more.end());
                    if (!add(recipe, values, kind, list)) break;
                }
        });
    }

    /// How the kernel adds the bias or c of the request, in words; nothing if it has no model for one.
    static std::optional<std::string> addend_effect(const OpRequest& request, const GemmKernel& kernel) {
        if (request.in.contains("bias")) {
            const RecipeBias* bias = find_bias(*kernel.recipe, kernel.values);
            if (bias == nullptr) return std::nullopt;
            constexpr const char* words[] = {"before rounding", "after rounding", "in the first part"};
            return std::string(", bias ") + words[static_cast<std::size_t>(bias->add)];
        }
        if (!request.in.contains("c")) return "";
        const RecipeAddend* addend = find_addend(*kernel.recipe, kernel.values);
        if (addend == nullptr) return std::nullopt;
        constexpr const char* words[] = {"fma(alpha, acc, beta*c)", "fma(beta, c, alpha*acc)", "alpha*acc + beta*c", "round(alpha*acc) + c",
                                         "c in the first part", "beta*c + alpha*(first part), then fma(alpha, part, sum)",
                                         "fma(beta, c, alpha*(first part)), then sum + alpha*part", "beta*c before the parts",
                                         "alpha*x in the sum", "alpha times the vector in the sum", "the sum from beta*c with alpha*w"};
        std::string out;
        for (const RecipeAddend::Order order : addend->orders) out += (out.empty() ? ", " : " or ") + std::string(words[static_cast<std::size_t>(order)]);
        return out;
    }

    /// False if the GPUs have no instruction for the recipe under these values, whatever its order.
    bool add(const Recipe& recipe,
             const RecipeValues& values,
             const std::vector<std::string>& gpus,
             CandidateList& list) const {
        CandidateName name{gpus, recipe.name, "{"};
        for (const auto& [key, value] : values) {
            const RecipeParam& param = *recipe.find_param(key);
            const bool usual =
                (param.fallback && *param.fallback == value) ||
                (param.fallback_bits != 0 && RecipeValue{param.fallback_bits / x_.format().storage_bits()} == value);
            if (!usual) name.params += (name.params.size() == 1 ? "\"" : ",\"") + key + "\":" + json_of(value);
        }
        name.params += "}";
        try {
            const OpRequest request = with_candidate(request_, name);
            const GemmKernel kernel = choose_gemm_kernel(request, x_.format(), w_.format(), x_.cols());
            const std::optional<std::string> added = addend_effect(request, kernel);
            if (!added) return true;
            // An instruction of several steps of one rule is a chain of shorter ones.
            std::int64_t step = kernel.instruction_k;
            std::string arithmetic = signature(*kernel.rule);
            const DotStep& only = kernel.rule->steps.front();
            if (kernel.rule->steps.size() == 1 && only.kind == DotStep::Kind::fused_dot &&
                only.from == DotStep::From::c && step % only.block == 0)
                step = only.block;
            const bool same = request_.out_format.value_or(x_.format()) == kernel.rule->types.d;
            const std::string order = to_string(plainest(kernel.plan, step, same));
            std::string key = arithmetic + " step " + std::to_string(step) + " " + order;
            std::string effect =
                describe_steps(*kernel.rule) + ", step " + std::to_string(step) + ", " + shortened(order);
            // Tiles of a partial round of CTAs have an order of their own.
            if (recipe.segments) key += " " + recipe.name + name.params;
            key += *added;
            effect += *added;
            list.add(key, effect, std::move(name));
            return true;
        } catch (const NotModelled&) {
            return false;
        } catch (const InputError&) {  // values that exclude each other
            return true;
        }
    }

    const OpRequest& request_;
    const IdentifyOptions& options_;
    const Tensor &x_, &w_;
};

}  // namespace

void add_gemm_candidates(const OpRequest& request, const IdentifyOptions& options, CandidateList& list) {
    GemmCandidates(request, options).add_all(list);
}

}  // namespace bitreplay::detail
