// Candidates of matrix products: every recipe with every combination of its parameters, as the recipe's data describe
// them.

#include <algorithm>
#include <bit>
#include <cmath>
#include <set>

#include "emu/identify_private.hpp"
#include "emu/indices.hpp"
#include "emu/ops/gemm_kernel.hpp"
#include "formats/convert.hpp"
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

/// A matrix product given as x [M, K] and w [N, K] and its epilogue's inputs.
class GemmSearch : public Search {
public:
    GemmSearch(const RecordedOp& op, const IdentifyOptions& options)
        : recorded_(op.outputs.front()), options_(options), request_(plain(op.request)) {
        x_ = &request_.input("x");
        w_ = &request_.input("w");
        if (w_->rank() != 2 || x_->rank() < 1 || x_->cols() != w_->cols() || x_->cols() == 0)
            throw InputError("op " + op.name + ": x is " + describe(*x_) + ", w is " + describe(*w_));
        rows_ = request_.rows ? *request_.rows : all_indices(x_->rows());
        cols_ = request_.cols ? *request_.cols : all_indices(w_->rows());
        if (rows_.empty() || cols_.empty()) throw InputError("op " + op.name + ": its output has no elements");
        if (recorded_.sha256.empty() && recorded_.values.size() != std::ssize(rows_) * std::ssize(cols_))
            throw InputError("op " + op.name + ": computed [" + std::to_string(rows_.size()) + ", " +
                             std::to_string(cols_.size()) + "], recorded " + describe(recorded_.values));
        if (recorded_.sha256.empty()) request_.out_format = recorded_.values.format();
    }

    CandidateList candidates() override {
        CandidateList list;
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
        if (!list.named()) throw NotModelled("no recipe, GPU and parameters go together for this op");
        choose_telling(list);
        return list;
    }

    Score telling(const CandidateName& name, std::size_t batch) override {
        if (batch >= telling_.size()) return {};
        return compare_part(name, telling_[batch].rows, telling_[batch].cols);
    }

    void left(std::size_t candidates) override {
        const std::int64_t m = std::ssize(rows_), n = std::ssize(cols_);
        constexpr std::int64_t about_a_second = 400'000'000;  // products
        constexpr std::int64_t many = 8;                      // candidates; more of them share the time
        const std::int64_t share = std::max<std::int64_t>(1, static_cast<std::int64_t>(candidates) / many);
        std::int64_t budget = std::max<std::int64_t>(512, about_a_second / x_->cols() / share);
        if (options_.max_compared != 0) budget = options_.max_compared < 0 ? m * n : options_.max_compared;
        const std::int64_t columns = std::clamp<std::int64_t>(budget / std::min<std::int64_t>(m, 64), 1, n);
        final_ = {spread(m, std::max<std::int64_t>(1, budget / columns)), spread(n, columns)};
    }

    Score full(const CandidateName& name) override { return compare_part(name, final_.rows, final_.cols); }

private:
    /// Positions within rows_ and cols_.
    struct Part {
        std::vector<std::int64_t> rows, cols;
    };

    /// Up to `count` of [0, extent), spread evenly, first and last included.
    static std::vector<std::int64_t> spread(std::int64_t extent, std::int64_t count) {
        if (count >= extent) return all_indices(extent);
        std::vector<std::int64_t> out;
        for (std::int64_t i = 0; i < count; ++i) out.push_back(count == 1 ? 0 : i * (extent - 1) / (count - 1));
        return out;
    }

    /// a·b as x·wᵀ, so that b is transposed once.
    static OpRequest plain(const OpRequest& request) {
        OpRequest out = request;
        if (request.in.contains("w")) {
            if (request.input("w").rank() > 2) request.not_modelled("identify of a batched product");
            return out;
        }
        const Tensor& b = request.input("b");
        if (b.rank() != 2) request.fail("input b must be a matrix, not " + describe(b));
        Tensor w(b.format(), {b.dim(1), b.dim(0)});
        for (std::int64_t n = 0; n < b.dim(1); ++n)
            for (std::int64_t k = 0; k < b.dim(0); ++k) w.set(n * b.dim(0) + k, b.get(k * b.dim(1) + n));
        out.op = "linear";
        out.in = {{"x", request.input("a")}, {"w", w}};
        if (request.in.contains("c")) out.in.emplace("c", request.input("c"));
        return out;
    }

    static std::string signature(const DotRule& rule) {
        std::string out = describe_steps(rule);
        for (const Format* format :
             {&rule.types.d, &rule.types.a, &rule.types.b, &rule.types.c, &rule.unit_a, &rule.unit_b})
            out += " " + std::string(named(*format).name);
        return out;
    }

    void add_recipe(const Recipe& recipe, const std::vector<std::vector<std::string>>& kinds, CandidateList& list) {
        if (recipe.families.empty()) return;
        for (const auto& [name, value] : options_.fixed)
            if (recipe.find_param(name) == nullptr) return;
        const int element_bits = x_->format().storage_bits();
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
                const Plan plan = make_plan(recipe, resolve(recipe, values, {}, element_bits), x_->cols());
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
                (param.fallback_bits != 0 && RecipeValue{param.fallback_bits / x_->format().storage_bits()} == value);
            if (!usual) name.params += (name.params.size() == 1 ? "\"" : ",\"") + key + "\":" + json_of(value);
        }
        name.params += "}";
        try {
            const OpRequest request = with_candidate(request_, name);
            const GemmKernel kernel = choose_gemm_kernel(request, x_->format(), w_->format(), x_->cols());
            const std::optional<std::string> added = addend_effect(request, kernel);
            if (!added) return true;
            // An instruction of several steps of one rule is a chain of shorter ones.
            std::int64_t step = kernel.instruction_k;
            std::string arithmetic = signature(*kernel.rule);
            const DotStep& only = kernel.rule->steps.front();
            if (kernel.rule->steps.size() == 1 && only.kind == DotStep::Kind::fused_dot &&
                only.from == DotStep::From::c && step % only.block == 0)
                step = only.block;
            const bool same = request_.out_format.value_or(x_->format()) == kernel.rule->types.d;
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

    /// Which outputs are compared. With a narrow output type most outputs are the same in any order; those tell whose
    /// unrounded value, computed under one of the candidates, lies closest to where the rounding tips over.
    void choose_telling(const CandidateList& list) {
        const std::int64_t m = std::ssize(rows_), n = std::ssize(cols_);
        // Few columns at a time: most candidates die of the first few, and reading a column costs more than multiplying
        // it.
        constexpr std::int64_t some_rows = 16, per_row = 16, per_batch = 4;
        const std::vector<std::int64_t> rows = spread(m, some_rows), cols = spread(n, 4096 / std::ssize(rows));
        const Format& narrow = recorded_.values.format();
        const Tensor exact = narrow.storage_bits() < 32 ? unrounded(list, rows, cols) : Tensor(fp32, {0});
        std::vector<std::vector<std::int64_t>> by_row;
        for (std::size_t i = 0; i < rows.size(); ++i) {
            if (exact.size() == 0) {
                by_row.push_back(spread(n, per_row));
                continue;
            }
            std::vector<std::pair<double, std::int64_t>> by_distance;
            for (std::size_t j = 0; j < cols.size(); ++j)
                by_distance.emplace_back(distance(exact.get(static_cast<std::int64_t>(i * cols.size() + j))), cols[j]);
            std::sort(by_distance.begin(), by_distance.end());
            by_row.emplace_back();
            for (std::size_t j = 0; j < std::min<std::size_t>(by_distance.size(), per_row); ++j)
                by_row.back().push_back(by_distance[j].second);
        }
        for (std::int64_t first = 0; first < per_row; first += per_batch)
            for (std::size_t i = 0; i < rows.size(); ++i) {
                const std::int64_t last = std::min(first + per_batch, std::ssize(by_row[i]));
                if (first < last)
                    telling_.push_back({{rows[i]}, {by_row[i].begin() + first, by_row[i].begin() + last}});
            }
    }

    Tensor unrounded(const CandidateList& list,
                     const std::vector<std::int64_t>& rows,
                     const std::vector<std::int64_t>& cols) const {
        for (const Candidate& candidate : list.all()) {
            OpRequest request = with_candidate(request_, candidate.names.front());
            request.out_format = fp32;
            request.rows = picked(rows_, rows);
            request.cols = picked(cols_, cols);
            try {
                return find_op(request.op)(request).out.at("");
            } catch (const NotModelled&) {
                continue;
            }
        }
        return Tensor(fp32, {0});
    }

    /// How far an unrounded value is from the nearest value at which the recorded type's rounding changes.
    double distance(std::uint64_t code) const {
        const Format& narrow = recorded_.values.format();
        const auto value = [](const Format& format, std::uint64_t bits) {
            return std::bit_cast<double>(convert(format, fp64, bits));
        };
        const std::uint64_t down = convert(fp32, narrow, code, {.rounding = Rounding::down}),
                            up = convert(fp32, narrow, code, {.rounding = Rounding::up});
        const double x = value(fp32, code), middle = (value(narrow, down) + value(narrow, up)) / 2;
        // An exactly representable value is half a step away from both sides.
        const double d = down == up ? HUGE_VAL : std::abs(x - middle);
        return std::isnan(d) ? HUGE_VAL : d;
    }

    static std::vector<std::int64_t> picked(const std::vector<std::int64_t>& from,
                                            const std::vector<std::int64_t>& positions) {
        std::vector<std::int64_t> out;
        for (const std::int64_t i : positions) out.push_back(from[static_cast<std::size_t>(i)]);
        return out;
    }

    Score compare_part(const CandidateName& name,
                       const std::vector<std::int64_t>& rows,
                       const std::vector<std::int64_t>& cols) const {
        OpRequest request = with_candidate(request_, name);
        request.rows = picked(rows_, rows);
        request.cols = picked(cols_, cols);
        const Tensor actual = find_op(request.op)(request).out.at("");
        RecordedOutput part = recorded_;
        part.values = Tensor(recorded_.values.format(), {std::ssize(rows), std::ssize(cols)});
        std::int64_t at = 0;
        for (const std::int64_t row : rows)
            for (const std::int64_t col : cols)
                part.values.set(at++, recorded_.values.get(row * std::ssize(cols_) + col));
        return score(part, actual);
    }

    const RecordedOutput& recorded_;
    const IdentifyOptions& options_;
    OpRequest request_;
    const Tensor *x_ = nullptr, *w_ = nullptr;
    std::vector<std::int64_t> rows_, cols_;  // of the output: what was recorded
    std::vector<Part> telling_;
    Part final_;
};

}  // namespace

std::unique_ptr<Search> gemm_search(const RecordedOp& op, const IdentifyOptions& options) {
    return std::make_unique<GemmSearch>(op, options);
}

}  // namespace bitreplay::detail
