#include "emu/identify.hpp"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>

#include "emu/compare.hpp"
#include "emu/identify_private.hpp"
#include "emu/io/sha256.hpp"
#include "emu/parallel.hpp"
#include "formats/error.hpp"
#include "reduction_trees/recipe.hpp"

namespace bitreplay {
namespace detail {

void CandidateList::add(const std::string& key, const std::string& effect, CandidateName name) {
    ++named_;
    const auto [place, fresh] = by_key_.emplace(key, list_.size());
    if (fresh) list_.push_back({key, effect, {}});
    Candidate& candidate = list_[place->second];
    for (CandidateName& known : candidate.names) {
        if (known.kernel != name.kernel) continue;
        if (known.params == name.params)
            for (std::string& gpu : name.gpus)
                if (std::find(known.gpus.begin(), known.gpus.end(), gpu) == known.gpus.end())
                    known.gpus.push_back(std::move(gpu));
        return;
    }
    candidate.names.push_back(std::move(name));
}

std::string json_of(const RecipeValue& value) {
    return std::holds_alternative<std::string>(value) ? "\"" + value_text(value) + "\"" : value_text(value);
}

OpRequest with_candidate(const OpRequest& request, const CandidateName& name) {
    const auto names_a_kernel = [](const std::string& key) {
        // A flash-attention call's number of parts, or what it follows from.
        return key == "splits" || key == "multiprocessors" ||
               std::any_of(recipes().begin(), recipes().end(), [&](const Recipe& recipe) {
                   return recipe.find_param(key) != nullptr;
               });
    };
    // A copy of its own: the getters of Params note what was asked, and candidates run on several threads.
    nlohmann::json params = nlohmann::json::parse(name.params);
    const nlohmann::json recorded = nlohmann::json::parse(request.params.json());
    for (const auto& [key, value] : recorded.items())
        if (!names_a_kernel(key) && !params.contains(key)) params[key] = value;
    return {.id = request.id,
            .op = request.op,
            .gpu = find_gpu(name.gpus.front()),
            .kernel = name.kernel,
            .kernel_names = {},
            .params = Params::parse(params.dump(), "params", ""),
            .in = request.in,
            .out_format = request.out_format,
            .recorded = {},
            .rows = request.rows,
            .cols = request.cols};
}

std::vector<std::vector<std::string>> gpu_kinds(const IdentifyOptions& options,
                                                const std::function<std::string(const Gpu&)>& signature) {
    if (options.gpu.ends_with(".json"))
        throw InputError("--gpu: identify knows the GPUs of 'bitreplay info gpus' by name, not by file");
    if (!options.gpu.empty()) return {{find_gpu(options.gpu).name}};
    std::vector<std::vector<std::string>> kinds;
    std::map<std::string, std::size_t> by_signature;
    for (const std::string& name : gpu_names()) {
        const auto [place, fresh] = by_signature.emplace(signature(find_gpu(name)), kinds.size());
        if (fresh) kinds.emplace_back();
        kinds[place->second].push_back(name);
    }
    return kinds;
}

std::string describe_steps(const DotRule& rule) {
    constexpr std::array<std::string_view, 3> selects{"", "k%4<2 ", "k%4>=2 "};
    std::string out;
    for (const DotStep& step : rule.steps) {
        if (!out.empty()) out += "; ";
        if (step.kind == DotStep::Kind::add_c) {
            out += "add c (rne)";
        } else if (step.kind == DotStep::Kind::fma_chain) {
            out += "fma chain";
        } else {
            out += std::string(selects[static_cast<std::size_t>(step.select)]) + "L=" + std::to_string(step.block) +
                   " F=" + std::to_string(step.align_bits) +
                   (step.rounding == Rounding::nearest_even ? " rne" : " rz") + " keep " + std::to_string(step.keep);
        }
    }
    return out;
}

Score score(const RecordedOutput& recorded, const Tensor& actual) {
    if (!(recorded.values.format() == actual.format()) || recorded.values.size() != actual.size())
        throw InputError("computed " + describe(actual) + ", recorded " + describe(recorded.values));
    const Comparison c = compare(recorded.values,
                                 actual.reshape(recorded.values.shape()),
                                 {.max_first = 0, .any_nan_equals_any_nan = !recorded.exact_nan});
    return {c.compared, c.different};
}

}  // namespace detail

namespace {

using detail::Candidate;
using detail::Score;

constexpr std::int64_t wrong_outputs = 3;  // a candidate is dropped once it got as many outputs wrong
constexpr std::size_t listed = 3;          // runners-up that are compared in full
constexpr std::size_t few = 8;             // candidates for which a digest alone is computed

struct Entry {
    const Candidate* candidate;
    Score telling, full;
    bool refused = false;  // the op does not run under it
};

CandidateGroup group_of(const Entry& entry) {
    return {entry.candidate->effect, entry.candidate->names, entry.full.compared, entry.full.different};
}

/// Runs every candidate on the telling outputs until it got some wrong; a refusal (not modelled) drops it too.
void eliminate(detail::Search& search, std::vector<Entry>& entries, const IdentifyOptions& options) {
    if (options.progress) options.progress(std::to_string(entries.size()) + " candidates");
    parallel_for(std::ssize(entries), 1, [&](std::int64_t first, std::int64_t last) {
        for (std::int64_t i = first; i < last; ++i) {
            Entry& entry = entries[static_cast<std::size_t>(i)];
            try {
                for (std::size_t batch = 0; entry.telling.different < wrong_outputs; ++batch) {
                    const Score score = search.telling(entry.candidate->names.front(), batch);
                    if (score.compared == 0) break;
                    entry.telling.compared += score.compared;
                    entry.telling.different += score.different;
                }
            } catch (const NotModelled&) {
                entry.refused = true;
            }
        }
    });
}

/// Whether a candidate's whole output has this SHA-256.
bool has_digest(const RecordedOp& op, const CandidateName& name, const std::string& sha256) {
    OpRequest request = detail::with_candidate(op.request, name);
    request.rows.reset();
    request.cols.reset();
    const OpResult result = find_op(request.op)(request);
    const std::string& output = op.outputs.front().name;
    return sha256_hex(result.out.at(output.empty() ? result.main : output).bytes()) == sha256;
}

/// Few candidates against a digest alone.
void compare_digests(const RecordedOp& op, std::vector<Entry>& entries, IdentifyReport& report) {
    if (entries.size() > few)
        throw InputError("op " + op.name + ": only a SHA-256 was recorded, and " + std::to_string(entries.size()) +
                         " candidates differ in effect; name the GPU, kernel or parameters (at most " +
                         std::to_string(few) + " are computed in full)");
    for (const Entry& entry : entries) {
        CandidateGroup group = group_of(entry);
        try {
            group.digest = has_digest(op, entry.candidate->names.front(), op.outputs.front().sha256);
        } catch (const NotModelled&) {
            continue;
        }
        (*group.digest ? report.found : report.runners_up).push_back(std::move(group));
    }
}

/// What reproduces a sample, computed in full.
void confirm(const RecordedOp& op, const std::string& sha256, IdentifyReport& report) {
    std::vector<CandidateGroup> found, rejected;
    for (CandidateGroup& group : report.found) {
        group.digest = has_digest(op, group.names.front(), sha256);
        (*group.digest ? found : rejected).push_back(std::move(group));
    }
    report.found = std::move(found);
    rejected.insert(rejected.end(), report.runners_up.begin(), report.runners_up.end());
    report.runners_up = std::move(rejected);
}

}  // namespace

IdentifyReport identify(const RecordedOp& op, const IdentifyOptions& options) {
    const std::string& kind = op.request.op;
    const auto is = [&](std::initializer_list<const char*> kinds) {
        return std::find(kinds.begin(), kinds.end(), kind) != kinds.end();
    };
    const auto make = is({"linear", "matmul", "mm", "addmm", "scaled_linear"})                            ? detail::gemm_search
                      : is({"attention"})                                                  ? detail::attention_search
                      : is({"reduce", "softmax", "log_softmax", "rms_norm", "layer_norm"}) ? detail::row_search
                                                                                           : nullptr;
    if (make == nullptr) throw NotModelled("op " + op.name + ": identify has no candidates for op " + kind);
    if (op.outputs.empty()) throw InputError("op " + op.name + ": nothing was recorded of its output");
    const std::unique_ptr<detail::Search> search = make(op, options);

    IdentifyReport report;
    report.op = op.name;
    const detail::CandidateList list = search->candidates();
    report.candidates = list.named();
    const std::vector<Candidate>& candidates = list.all();
    report.distinct = std::ssize(candidates);
    std::vector<Entry> entries;
    for (const Candidate& candidate : candidates) entries.push_back({&candidate, {}, {}});
    if (!op.outputs.front().sha256.empty()) {
        compare_digests(op, entries, report);
        return report;
    }

    for (const RecordedOutput& output : op.outputs) report.recorded += output.values.size();
    eliminate(*search, entries, options);
    std::erase_if(entries, [](const Entry& entry) { return entry.refused; });
    // Survivors first, then the closest: fewest wrong, and of those that died as late as possible.
    std::stable_sort(entries.begin(), entries.end(), [](const Entry& x, const Entry& y) {
        const auto rank = [](const Entry& e) {
            return std::pair(e.telling.different == 0 ? 0 : e.telling.different, -e.telling.compared);
        };
        return rank(x) < rank(y);
    });
    search->left(static_cast<std::size_t>(std::count_if(
        entries.begin(), entries.end(), [](const Entry& entry) { return entry.telling.different == 0; })));
    std::vector<Entry*> rejected;
    for (Entry& entry : entries) {
        const bool survivor = entry.telling.different == 0;
        if (!survivor && rejected.size() >= listed) break;
        if (options.progress)
            options.progress("comparing " + entry.candidate->names.front().kernel + " " +
                             entry.candidate->names.front().params);
        entry.full = search->full(entry.candidate->names.front());
        if (entry.full.different == 0) {
            report.compared = entry.full.compared;
            report.found.push_back(group_of(entry));
        } else {
            rejected.push_back(&entry);
        }
    }
    // Plainest first: what the recorded GPU can do, then the fewest parameters that are not the usual ones.
    std::stable_sort(report.found.begin(), report.found.end(), [&](const CandidateGroup& x, const CandidateGroup& y) {
        const auto rank = [&](const CandidateGroup& group) {
            const bool here = std::any_of(group.names.begin(), group.names.end(), [&](const CandidateName& name) {
                return std::find(name.gpus.begin(), name.gpus.end(), op.request.gpu.name) != name.gpus.end();
            });
            const auto plainest =
                std::min_element(group.names.begin(), group.names.end(), [](const auto& n, const auto& m) {
                    return n.params.size() < m.params.size();
                });
            return std::pair(!here, std::count(plainest->params.begin(), plainest->params.end(), ':'));
        };
        return rank(x) < rank(y);
    });
    std::stable_sort(rejected.begin(), rejected.end(), [](const Entry* x, const Entry* y) {
        return x->full.different < y->full.different;
    });
    for (const Entry* entry : rejected) report.runners_up.push_back(group_of(*entry));
    if (report.found.empty() && !report.runners_up.empty()) report.compared = report.runners_up.front().compared;
    if (!options.sha256.empty()) confirm(op, options.sha256, report);
    if (!report.runners_up.empty()) report.separation = report.runners_up.front().different;
    return report;
}

}  // namespace bitreplay
