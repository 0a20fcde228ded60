// Candidates of flash attention (build x kind of GPU x number of parts of the keys) and of PyTorch's row reductions
// (kind of GPU x alignment of the input).

#include <algorithm>

#include "emu/attention.hpp"
#include "emu/identify_private.hpp"
#include "formats/error.hpp"
#include "reduction_trees/torch_reduce.hpp"

namespace bitreplay::detail {
namespace {

Score compare_all(const RecordedOp& op, const OpRequest& request) {
    const OpResult result = find_op(request.op)(request);
    Score total;
    for (const RecordedOutput& recorded : op.outputs) {
        const auto found = result.out.find(recorded.name.empty() ? result.main : recorded.name);
        if (found == result.out.end())
            throw InputError("op " + op.name + ": it has no output \"" + recorded.name + "\"");
        const Score one =
            score(recorded, result.selected ? found->second : sampled(found->second, recorded.rows, recorded.cols));
        total.compared += one.compared;
        total.different += one.different;
    }
    return total;
}

class AttentionSearch : public Search {
public:
    AttentionSearch(const RecordedOp& op, const IdentifyOptions& options) : op_(op), options_(options) {
        const Tensor &q = op.request.input("q"), &k = op.request.input("k");
        if (q.rank() != 4 || k.rank() != 4)
            throw InputError("op " + op.name + ": q, k and v must be [batch, heads, length, head dimension]");
        for (const auto& [name, value] : options.fixed)
            if (name != "splits")
                throw InputError("op " + op.name + ": the parameter of an attention that can be fixed is splits, not " +
                                 name);
        choose_telling();
    }

    CandidateList candidates() override {
        const Tensor &q = op_.request.input("q"), &k = op_.request.input("k");
        const FlashRecipe& recipe = flash_recipe();
        const bool causal = op_.request.params.boolean("causal", false) && q.dim(2) != 1;
        const std::int64_t head_dim = recipe.head_dim(q.dim(3));
        const auto arithmetic = [&](const Gpu& gpu) {
            const DotRule* rule = gpu.find_dot_rule(recipe.instruction_family,
                                                    {.d = fp32, .a = q.format(), .b = q.format(), .c = fp32},
                                                    recipe.instruction_k);
            return rule == nullptr || !gpu.mufu ? std::string()
                                                : describe_steps(*rule) + ", special functions of " + gpu.mufu->table;
        };
        // Windows make a causal call look otherwise to the kernel, so both tiles count.
        const auto tiles = [&](const Gpu& gpu) {
            const std::int64_t tile = recipe.forward_tile(gpu.sm, head_dim, causal).key,
                               other = recipe.forward_tile(gpu.sm, head_dim, false).key;
            return std::to_string(tile) + (tile == other ? "" : " or " + std::to_string(other));
        };
        const auto signature = [&](const Gpu& gpu) {
            try {
                return arithmetic(gpu).empty() ? std::string() : arithmetic(gpu) + tiles(gpu);
            } catch (const NotModelled&) {
                return std::string();
            }
        };
        CandidateList list;
        for (const auto& gpus : gpu_kinds(options_, signature)) {
            const Gpu& gpu = find_gpu(gpus.front());
            if (signature(gpu).empty()) continue;
            for (const FlashBuild& build : recipe.builds) {
                if (!options_.kernel.empty() && options_.kernel != build.name) continue;
                for (const std::int64_t parts : splits(recipe, head_dim, k.dim(2))) {
                    const std::string effect =
                        arithmetic(gpu) + ", " + build.name + ", key tiles of " +
                        (parts == 1 ? tiles(gpu) : std::to_string(recipe.split_tile(head_dim).key)) + ", keys in " +
                        std::to_string(parts) + (parts == 1 ? " part" : " parts");
                    list.add(effect, effect, {gpus, build.name, "{\"splits\":" + std::to_string(parts) + "}"});
                }
            }
            if ((options_.kernel.empty() || options_.kernel == "torch.eager") && options_.fixed.empty())
                list.add(
                    arithmetic(gpu) + "eager", arithmetic(gpu) + ", written out (eager)", {gpus, "torch.eager", "{}"});
        }
        if (list.named() == 0) throw NotModelled("op " + op_.name + ": no attention kernel and GPU go together for it");
        return list;
    }

    Score telling(const CandidateName& name, std::size_t batch) override {
        if (batch != 0 || !small_) return {};
        return compare_all(*small_, with_candidate(small_->request, name));
    }

    Score full(const CandidateName& name) override { return compare_all(op_, with_candidate(op_.request, name)); }

private:
    /// Those that the host code can choose: more parts must mean fewer tiles in each.
    std::vector<std::int64_t> splits(const FlashRecipe& recipe, std::int64_t head_dim, std::int64_t keys) const {
        if (const auto fixed = options_.fixed.find("splits"); fixed != options_.fixed.end())
            return {std::stoll(fixed->second)};
        const std::int64_t tile = recipe.split_tile(head_dim).key, tiles = (keys + tile - 1) / tile;
        std::vector<std::int64_t> out;
        const auto per_part = [&](std::int64_t n) { return (tiles + n - 1) / n; };
        for (std::int64_t n = 1; n <= std::min(tiles, options_.max_parts); ++n)
            if (n == 1 || per_part(n) != per_part(n - 1)) out.push_back(n);
        return out;
    }

    /// The last query rows of the first head: a row's result depends on its distance to the last key only.
    void choose_telling() {
        const RecordedOutput& main = op_.outputs.front();
        const Tensor &q = op_.request.input("q"), &k = op_.request.input("k"), &v = op_.request.input("v");
        const bool whole = main.name != "lse" && main.values.size() == q.size() && !main.rows && !main.cols;
        if (!whole || op_.request.params.has("cu_seqlens_q") || q.size() == 0 || k.size() == 0) return;
        constexpr std::int64_t some = 32;
        const std::int64_t rows = std::min(q.dim(2), some), d = q.dim(3);
        const auto cut = [](const Tensor& from, std::int64_t first, std::int64_t count) {
            Tensor out(from.format(), {1, 1, count, from.cols()});
            for (std::int64_t i = 0; i < count * from.cols(); ++i) out.set(i, from.get(first * from.cols() + i));
            return out;
        };
        small_.emplace(op_);
        small_->request.in = {
            {"q", cut(q, q.dim(2) - rows, rows)}, {"k", cut(k, 0, k.dim(2))}, {"v", cut(v, 0, v.dim(2))}};
        small_->request.rows = small_->request.cols = std::nullopt;
        RecordedOutput part = main;
        part.values = cut(main.values.reshape({q.rows(), d}), q.dim(2) - rows, rows);
        small_->outputs = {part};
    }

    const RecordedOp& op_;
    const IdentifyOptions& options_;
    std::optional<RecordedOp> small_;
};

class RowSearch : public Search {
public:
    RowSearch(const RecordedOp& op, const IdentifyOptions& options) : op_(op), options_(options) {
        for (const auto& [name, value] : options.fixed)
            throw InputError("op " + op.name + ": it has no kernel parameter " + name + " to fix");
    }

    CandidateList candidates() override {
        const bool reduces = op_.request.op == "reduce";
        const auto launch = [&](const Gpu& gpu) { return describe_launch(gpu, op_.request); };
        CandidateList list;
        for (const auto& gpus : gpu_kinds(options_, launch)) {
            const std::string order = launch(find_gpu(gpus.front()));
            if (!reduces) {
                list.add(order, order, {gpus, "torch.2.11", "{}"});
                continue;
            }
            const std::int64_t offsets = order.ends_with("loads of 8") ? 8 : order.ends_with("loads of 4") ? 4 : 1;
            for (std::int64_t offset = 0; offset < offsets; ++offset)
                list.add(order + std::to_string(offset),
                         order + (offset == 0 ? "" : ", starting " + std::to_string(offset) + " after a boundary"),
                         {gpus, "torch.2.11", "{\"storage_offset\":" + std::to_string(offset) + "}"});
        }
        return list;
    }

    Score telling(const CandidateName&, std::size_t) override { return {}; }

    Score full(const CandidateName& name) override { return compare_all(op_, with_candidate(op_.request, name)); }

private:
    const RecordedOp& op_;
    const IdentifyOptions& options_;
};

}  // namespace

std::string describe_launch(const Gpu& gpu, const OpRequest& request) {
    const Tensor& x = request.input("x");
    std::string out = "special functions of " + (gpu.mufu ? gpu.mufu->table : std::string("none"));
    // The other kernels are launched alike on every GPU.
    const bool reduces = request.op == "reduce";
    if ((!reduces && request.op != "rms_norm") || x.rows() < 1 || x.cols() < 1) return out;
    const std::string function = request.params.text("fn", "");
    const bool widened = !reduces || function == "mean_sq" || function == "logsumexp";
    const int width = widened || x.format() == fp32 ? 4 : 8;
    const TorchReduce shape =
        torch_reduce({x.rows(), x.cols(), width, gpu.multiprocessors, gpu.threads_per_multiprocessor});
    return out + ", block " + std::to_string(shape.block_x) + " x " + std::to_string(shape.block_y) +
           (shape.split_y ? " on one row" : "") + ", " + std::to_string(shape.ctas) +
           (shape.ctas == 1 ? " block" : " blocks") + " a row" +
           (shape.vectorised ? ", loads of " + std::to_string(width) : "");
}

std::unique_ptr<Search> attention_search(const RecordedOp& op, const IdentifyOptions& options) {
    return std::make_unique<AttentionSearch>(op, options);
}

std::unique_ptr<Search> row_search(const RecordedOp& op, const IdentifyOptions& options) {
    return std::make_unique<RowSearch>(op, options);
}

}  // namespace bitreplay::detail
