#include "emu/replay.hpp"

#include <algorithm>
#include <functional>
#include <set>

#include "arch/gpu.hpp"
#include "emu/indices.hpp"
#include "emu/io/manifest_tensors.hpp"
#include "emu/io/sha256.hpp"
#include "emu/ops/op.hpp"
#include "emu/replay_checks_private.hpp"
#include "formats/error.hpp"

namespace bitreplay {
namespace {

using namespace detail;

class Replay {
public:
    Replay(const Manifest& manifest, const ReplayOptions& options) : manifest_(manifest), options_(options), tensors_(manifest) {}

    ReplayReport run() {
        find_needed();
        check_shapes(manifest_, tensors_, needed_, options_.recorded);
        for (std::size_t i = 0; i < manifest_.ops.size(); ++i) {
            if (!needed_[i]) continue;
            const ManifestOp& op = manifest_.ops[i];
            if (options_.progress) options_.progress(op.id, i, manifest_.ops.size());
            try {
                run_op(op, i);
            } catch (const NotModelled& error) {
                report_.not_modelled.push_back({op.id, error.what()});
                for (const auto& [output, name] : op.out) missing_.insert(name);
            }
            forget(i);
        }
        return std::move(report_);
    }

    /// Op i with its inputs, after the ops that feed it. `stage`: of a layer, or "".
    RecordedOp find(std::size_t i, const std::string& stage, const std::optional<std::pair<std::int64_t, std::int64_t>>& element) {
        const ManifestOp& op = manifest_.ops[i];
        needed_.assign(manifest_.ops.size(), false);
        need_inputs(i);
        needed_[i] = true;
        check_shapes(manifest_, tensors_, needed_, options_.recorded);
        for (std::size_t j = 0; j < i; ++j)
            if (needed_[j]) run_op(manifest_.ops[j], j);
        sought_ = true;
        OpRequest found = about(manifest_, op, [&] { return request(op, i); });
        if (element && stage.empty()) {
            found.rows = {element->first};
            found.cols = {element->second};
        }
        if (stage.empty()) return {op.id, "", std::move(found), outputs(op, "")};

        std::optional<OpRequest> reached;
        struct Stop {};  // the rest of the layer need not run
        found.observe = [&](const std::string& name, const OpRequest& at) {
            if (name != stage) return;
            reached.emplace(at);
            throw Stop{};
        };
        try {
            about(manifest_, op, [&] { return function_of(op)(found); });
        } catch (const Stop&) {
        }
        if (!reached) fail("op " + op.id + ": it has no stage \"" + stage + "\" that is an op");
        std::vector<RecordedOutput> out = outputs(op, stage);
        reached->rows = element ? std::optional(std::vector{element->first}) : out.empty() ? std::nullopt : out.front().rows;
        reached->cols = element ? std::optional(std::vector{element->second}) : out.empty() ? std::nullopt : out.front().cols;
        return {op.id + "." + stage, stage, std::move(*reached), std::move(out)};
    }

private:
    void need_inputs(std::size_t i) {
        for (const auto& [input, name] : manifest_.ops[i].in) {
            last_use_[name] = std::max(last_use_[name], i);
            if (!is_computed(name, i)) continue;
            consumed_.insert(name);
            needed_[producer(name, i)] = true;
            need_inputs(producer(name, i));
        }
    }

    /// What is expected of an op, or of one stage of a layer (then it is the only output).
    std::vector<RecordedOutput> outputs(const ManifestOp& op, const std::string& stage) {
        std::vector<RecordedOutput> out;
        for (const auto& [output, expect] : op.expect) {
            if (!stage.empty() && output != stage) continue;
            RecordedOutput recorded{.name = stage.empty() ? output : "", .values = Tensor(fp32, {0}), .sha256 = expect.sha256,
                                    .exact_nan = expect.exact_nan, .rows = expect.rows, .cols = expect.cols};
            if (expect.sha256.empty()) recorded.values = tensors_.get(expect.tensor);
            const bool main = output != "lse";  // the only op of several outputs of which one is the main one is attention
            out.insert(main ? out.begin() : out.end(), std::move(recorded));
        }
        return out;
    }

    bool wanted(const ManifestOp& op, const std::string& output) const {
        if (options_.stages.empty()) return true;
        return std::any_of(options_.stages.begin(), options_.stages.end(), [&](const std::string& stage) {
            const auto name = op.out.find(output);
            return stage == op.id || (!output.empty() && (stage == output || stage == op.id + "." + output)) || (name != op.out.end() && stage == name->second);
        });
    }

    /// True if input `name` of op i comes from an earlier op.
    bool is_computed(const std::string& name, std::size_t i) {
        if (options_.recorded && tensors_.has(name)) return false;
        return producer(name, i) < i;
    }

    std::size_t producer(const std::string& name, std::size_t before) const {
        for (std::size_t i = before; i-- > 0;)
            for (const auto& [output, out_name] : manifest_.ops[i].out)
                if (out_name == name) return i;
        return manifest_.ops.size();
    }

    /// The ops with a wanted check, and those that feed them.
    void find_needed() {
        const std::size_t count = manifest_.ops.size();
        needed_.assign(count, false);
        std::set<std::string> unmatched(options_.stages.begin(), options_.stages.end());
        std::size_t checks = 0;
        for (std::size_t i = count; i-- > 0;) {
            const ManifestOp& op = manifest_.ops[i];
            for (const auto& [output, expect] : op.expect) {
                if (!wanted(op, output)) continue;
                needed_[i] = true;
                ++checks;
                unmatched.erase(op.id);
                unmatched.erase(output);
                unmatched.erase(op.id + "." + output);
                if (const auto name = op.out.find(output); name != op.out.end()) unmatched.erase(name->second);
            }
            if (!needed_[i]) continue;
            for (const auto& [input, name] : op.in) {
                for (const std::string& tensor : tensors_of(name, i)) last_use_[tensor] = std::max(last_use_[tensor], i);
                if (!is_computed(name, i)) continue;
                needed_[producer(name, i)] = true;
                consumed_.insert(name);
            }
        }
        for (const std::string& stage : unmatched) fail("--stage: no check is called \"" + stage + "\"");
        if (checks == 0) fail("/ops: nothing to compare: no op has an \"expect\"");
    }

    /// What an input of op i names: a tensor, or every tensor below a prefix.
    std::vector<std::string> tensors_of(const std::string& name, std::size_t i) {
        if (tensors_.has(name) || producer(name, i) < i) return {name};
        return tensors_.below(name);
    }

    [[noreturn]] void fail(const std::string& reason) const { detail::fail_manifest(manifest_, reason); }

    OpFunction function_of(const ManifestOp& op) const {
        const OpFunction function = find_op(op.op);
        if (function == nullptr) fail("op " + op.id + ": unknown op \"" + op.op + "\"");
        return function;
    }

    Tensor input(const std::string& name, std::size_t i) {
        if (!is_computed(name, i)) return tensors_.get(name);
        if (missing_.contains(name)) throw NotModelled("its input \"" + name + "\" was not computed");
        return computed_.at(name);
    }

    OpRequest request(const ManifestOp& op, std::size_t i) {
        OpRequest out{.id = op.id, .op = op.op, .gpu = find_gpu(op.gpu), .kernel = op.kernel, .kernel_names = op.kernel_names,
                      .params = op.params, .in = {}, .out_format = op.out_format, .recorded = {}, .rows = {}, .cols = {},
                      .cublaslt = op.cublaslt};
        // A single sampled output that nothing else needs: only those elements are computed.
        const auto single = op.expect.find("");
        const bool feeds = std::any_of(op.out.begin(), op.out.end(), [&](const auto& item) { return consumed_.contains(item.second); });
        if (op.expect.size() == 1 && single != op.expect.end() && !feeds && !options_.ran) {
            out.batch = single->second.batch;
            out.rows = single->second.rows;
            out.cols = single->second.cols;
        }
        const std::map<std::string, const std::vector<std::int64_t>*> sampled = sampled_inputs(op, out, i);
        for (const auto& [name, tensor] : op.in) {
            if (const auto indices = sampled.find(name); indices != sampled.end()) {
                out.in[name] = tensors_.rows(tensor, *indices->second);
                continue;
            }
            const std::vector<std::string> all = tensors_of(tensor, i);
            if (all == std::vector{tensor}) {
                out.in[name] = input(tensor, i);
                continue;
            }
            if (name != "weights" || all.empty()) fail("op " + op.id + ": input \"" + name + "\": the checkpoint has no tensor \"" + tensor + "\"");
            for (const std::string& one : all) out.in[name + "/" + one.substr(tensor.size())] = tensors_.get(one);
            const auto checkpoint = manifest_.checkpoint_key(tensor);
            if (checkpoint && !op.params.has("config")) out.config = tensors_.checkpoint(checkpoint->first).config();
        }
        const auto becomes_all = [&](const char* input_name, std::optional<std::vector<std::int64_t>>& indices, std::optional<InputPart>& part) {
            if (!sampled.contains(input_name)) return;
            part = InputPart{*indices, tensors_.outline(op.in.at(input_name)).shape.front()};
            indices = all_indices(std::ssize(*indices));
        };
        becomes_all("x", out.rows, out.x_part);
        becomes_all("w", out.cols, out.w_part);
        if (options_.recorded)
            for (const auto& [output, expect] : op.expect)
                if (!expect.tensor.empty() && !expect.rows && !expect.cols) out.recorded[output] = tensors_.get(expect.tensor);
        return out;
    }

    /// Inputs of a sampled product of which a part is enough: output row r needs row r of x, column c row c of w. By input
    /// name: the indices, or nothing where a tensor comes from another op.
    std::map<std::string, const std::vector<std::int64_t>*> sampled_inputs(const ManifestOp& op, const OpRequest& request, std::size_t i) {
        std::map<std::string, const std::vector<std::int64_t>*> out;
        if (sought_ || (op.op != "linear" && op.op != "scaled_linear")) return out;
        const auto pick = [&](const char* name, const std::optional<std::vector<std::int64_t>>& indices) {
            const auto tensor = op.in.find(name);
            if (indices && tensor != op.in.end() && !is_computed(tensor->second, i) && tensors_.outline(tensor->second).shape.size() == 2)
                out[name] = &*indices;
        };
        pick("x", request.rows);
        pick("w", request.cols);
        return out;
    }

    void run_op(const ManifestOp& op, std::size_t i) {
        const OpFunction function = function_of(op);
        const OpResult result = about(manifest_, op, [&] {
            OpRequest asked = request(op, i);
            std::vector<std::pair<std::string, OpRequest>> stages;
            if (options_.ran) asked.observe = [&](const std::string& stage, const OpRequest& at) { stages.emplace_back(stage, at); };
            OpResult out = function(asked);
            if (options_.ran) report_run(op, asked, stages, out);
            return out;
        });
        report_.warnings.insert(report_.warnings.end(), result.warnings.begin(), result.warnings.end());
        for (const auto& [output, name] : op.out) {
            if (why_missing(result, output).empty())
                computed_[name] = output_of(op, result, output);
            else
                missing_.insert(name);
        }
        for (const auto& [output, expect] : op.expect) {
            if (!wanted(op, output)) continue;
            const std::string reason = why_missing(result, output);
            if (reason.empty())
                about(manifest_, op, [&] { check(op, output, output_of(op, result, output), expect, result.selected); });
            else
                report_.not_modelled.push_back({op.id + (output.empty() ? "" : "." + output), reason});
        }
    }

    void report_run(const ManifestOp& op, const OpRequest& asked, const std::vector<std::pair<std::string, OpRequest>>& stages, const OpResult& result) const {
        for (const auto& [stage, at] : stages)
            if (const auto out = result.out.find(stage); out != result.out.end()) options_.ran(op.id + "." + stage, at, {{"", out->second}});
        if (stages.empty()) options_.ran(op.id, asked, result.out);
    }

    /// Why an output was not computed; empty if it was.
    static std::string why_missing(const OpResult& result, const std::string& output) {
        const std::string& name = output.empty() ? result.main : output;
        if (result.out.contains(name)) return {};
        const auto named = result.not_modelled.find(name), all = result.not_modelled.find("");
        return named != result.not_modelled.end() ? named->second : all != result.not_modelled.end() ? all->second : std::string();
    }

    const Tensor& output_of(const ManifestOp& op, const OpResult& result, const std::string& output) const {
        const auto found = result.out.find(output.empty() ? result.main : output);
        if (found == result.out.end()) fail("op " + op.id + ": it has no output \"" + output + "\"");
        return found->second;
    }

    void check(const ManifestOp& op, const std::string& output, const Tensor& actual, const Expectation& expect, bool selected) {
        Check out{.id = op.id, .output = output, .format = actual.format(), .comparison = {}, .expected_sha256 = expect.sha256, .actual_sha256 = {}};
        if (!expect.sha256.empty()) {
            out.actual_sha256 = sha256_hex(actual.bytes());
            out.comparison.compared = actual.size();
            out.comparison.different = out.actual_sha256 == expect.sha256 ? 0 : 1;
            report_.checks.push_back(std::move(out));
            return;
        }
        const Tensor expected = tensors_.get(expect.tensor);
        const Tensor part = about_output(output, [&] { return selected ? actual : sampled(actual, expect.rows, expect.cols, expect.batch); });
        check_same(output, outline(expected), outline(part));
        const CompareOptions how{.max_first = options_.max_first, .any_nan_equals_any_nan = !expect.exact_nan};
        out.comparison = compare(expected, part.reshape(expected.shape()), how);
        report_.checks.push_back(std::move(out));
    }

    /// Frees tensors that no later op reads.
    void forget(std::size_t i) {
        for (const auto& [input, name] : manifest_.ops[i].in)
            for (const std::string& tensor : tensors_of(name, i))
                if (last_use_[tensor] <= i) {
                    tensors_.forget(tensor);
                    computed_.erase(tensor);
                }
        tensors_.close_checkpoints();
        for (const auto& [output, name] : manifest_.ops[i].out)
            if (!consumed_.contains(name)) computed_.erase(name);
        for (const auto& [output, expect] : manifest_.ops[i].expect)
            if (!last_use_.contains(expect.tensor)) tensors_.forget(expect.tensor);
    }

    const Manifest& manifest_;
    const ReplayOptions& options_;
    ManifestTensors tensors_;
    std::vector<bool> needed_;
    std::set<std::string> consumed_;                // outputs that a needed op reads
    std::map<std::string, std::size_t> last_use_;  // last needed op that reads a name
    std::map<std::string, Tensor> computed_;
    std::set<std::string> missing_;  // outputs of ops that are not modelled
    bool sought_ = false;            // the op asked about is the one that find() looks for: its inputs are left whole
    ReplayReport report_;
};

}  // namespace

bool ReplayReport::different() const noexcept {
    return std::any_of(checks.begin(), checks.end(), [](const Check& check) { return check.comparison.different != 0; });
}

std::string ReplayReport::result() const { return different() ? "different" : not_modelled.empty() ? "equal" : "not_modelled"; }

int ReplayReport::exit_code() const noexcept { return different() ? 1 : not_modelled.empty() ? 0 : 3; }

ReplayReport replay(const Manifest& manifest, const ReplayOptions& options) { return Replay(manifest, options).run(); }

Tensor load_tensor(const Manifest& manifest, const std::string& name) { return ManifestTensors(manifest).get(name); }

RecordedOp recorded_op(const Manifest& manifest, const std::string& name, const std::optional<std::pair<std::int64_t, std::int64_t>>& element) {
    const ReplayOptions options{.stages = {}, .recorded = true, .max_first = 0, .progress = {}};
    const auto fail = [&](const std::string& reason) { fail_manifest(manifest, reason); };
    std::string wanted = name;
    if (wanted.empty()) {
        const std::vector<std::string> names = recorded_op_names(manifest);
        if (names.size() != 1) fail("--op: " + std::to_string(names.size()) + " ops have an \"expect\"; name one of them");
        wanted = names.front();
    }
    for (std::size_t i = 0; i < manifest.ops.size(); ++i) {
        const std::string& id = manifest.ops[i].id;
        const bool layer = manifest.ops[i].op == "decoder_layer";
        if (wanted != id && !(layer && wanted.starts_with(id + "."))) continue;
        if (wanted == id && layer) fail("--op: " + id + " is a layer; name a stage of it, as " + id + ".down");
        return Replay(manifest, options).find(i, wanted == id ? "" : wanted.substr(id.size() + 1), element);
    }
    fail("--op: no op is called \"" + wanted + "\"");
    throw std::logic_error("unreachable");
}

}  // namespace bitreplay
