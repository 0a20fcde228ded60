#include <algorithm>

#include "arch/fp32.hpp"
#include "emu/attention/flash_private.hpp"
#include "emu/parallel.hpp"
#include "formats/convert.hpp"
#include "formats/error.hpp"

namespace bitreplay {
namespace {

using detail::FlashBlock;
using detail::FlashProblem;

/// (float)((double)scale · log2(e)), as the host code computes it.
std::uint32_t times_log2e(std::uint32_t scale) noexcept {
    return static_cast<std::uint32_t>(convert(fp64, fp32, f64::mul(convert(fp32, fp64, scale), 0x3FF71547652B82FE)));
}

const DotRule& find_rule(const FlashCall& call) {
    const FlashRecipe& recipe = flash_recipe();
    const Format& format = call.q.format();
    const DotRule* rule =
        call.gpu.find_dot_rule(recipe.instruction_family, {.d = fp32, .a = format, .b = format, .c = fp32}, recipe.instruction_k);
    if (rule == nullptr || (format != bf16 && format != fp16))
        throw NotModelled("flash attention of " + std::string(named(format).name) + " on " + call.gpu.name);
    return *rule;
}

/// The thread blocks of one part of the keys (part 0 of 1: all keys), for every batch entry, head and sequence.
class Blocks {
public:
    Blocks(const FlashCall& call, const FlashPlan& plan) : call_(call), plan_(plan) {}

    std::vector<FlashBlock> list(std::int64_t part) const {
        std::vector<FlashBlock> out;
        const std::int64_t batch = call_.q.dim(0), heads = call_.q.dim(1), key_heads = call_.k.dim(1);
        for (std::int64_t b = 0; b < batch; ++b)
            for (std::int64_t h = 0; h < heads; ++h) {
                const std::int64_t q_row = (b * heads + h) * call_.q.dim(2);
                const std::int64_t kv_row = (b * key_heads + h / (heads / key_heads)) * call_.k.dim(2);
                if (call_.bounds_q.empty()) {
                    sequence(out, part, q_row, kv_row, call_.q.dim(2), call_.k.dim(2));
                    continue;
                }
                for (std::size_t s = 0; s + 1 < call_.bounds_q.size(); ++s)
                    sequence(out, part, q_row + call_.bounds_q[s], kv_row + call_.bounds_k[s],
                             call_.bounds_q[s + 1] - call_.bounds_q[s], call_.bounds_k[s + 1] - call_.bounds_k[s]);
            }
        return out;
    }

private:
    void sequence(std::vector<FlashBlock>& out, std::int64_t part, std::int64_t q_row, std::int64_t kv_row, std::int64_t queries,
                  std::int64_t keys) const {
        const auto [bm, bn] = plan_.tile;
        const std::int64_t tiles = (keys + bn - 1) / bn;
        const std::int64_t per_part = (tiles + plan_.splits - 1) / plan_.splits;
        // The kernel variant for whole tiles checks one tile less for a maximum of -inf.
        const bool whole = call_.bounds_q.empty() && queries % bm == 0 && keys % bn == 0 && call_.q.cols() == plan_.head_dim &&
                           plan_.head_dim <= 128 && !plan_.local;
        for (std::int64_t position = 0; position < queries; position += bm) {
            FlashBlock block{q_row + position, std::min(bm, queries - position), position, kv_row, queries, keys, 0, 0, 0};
            const std::int64_t diagonal = position + keys - queries;
            block.first_tile = part * per_part;
            block.last_tile = std::min(tiles, (part + 1) * per_part);
            if (plan_.local) block.first_tile = std::max(block.first_tile, (diagonal - plan_.window_left) / bn);
            // C division: a negative numerator rounds towards zero, which also leaves no tile.
            if (plan_.causal || plan_.local)
                block.last_tile = std::min(block.last_tile, (diagonal + bm + plan_.window_right + bn - 1) / bn);
            block.checked_tiles = plan_.causal ? (bm + bn - 1) / bn + (whole ? 0 : 1) : 0;
            out.push_back(block);
        }
    }

    const FlashCall& call_;
    const FlashPlan& plan_;
};

void check(const FlashCall& call) {
    const auto fail = [](const std::string& reason) { throw InputError("attention: " + reason); };
    detail::check_attention(call.q, call.k, call.v);
    if (call.splits < 0 || (call.splits == 0 && call.multiprocessors <= 0)) fail("multiprocessors must be positive");
    if (call.bounds_q.size() != call.bounds_k.size()) fail("as many bounds of queries as of keys");
    if (call.bounds_q.empty()) return;
    if (call.q.dim(0) != 1) fail("a variable-length call has batch size 1");
    const auto bad = [](const std::vector<std::int64_t>& bounds, std::int64_t end) {
        return bounds.size() < 2 || bounds.front() != 0 || bounds.back() != end || !std::is_sorted(bounds.begin(), bounds.end());
    };
    if (bad(call.bounds_q, call.q.dim(2)) || bad(call.bounds_k, call.k.dim(2))) fail("the bounds must ascend from 0 to the number of rows");
}

/// Runs the thread blocks of one problem.
class Runner {
public:
    Runner(const FlashProblem& problem, const FlashEngine& engine) : problem_(problem) {
        if (!engine.fast || engine.observer != nullptr) return;
        for (const simd::FlashRowKernels* kernels : simd::flash_row_kernels())
            if (kernels_ == nullptr && (engine.isa.empty() || kernels->name == engine.isa)) kernels_ = kernels;
        isa_ = engine.isa;
    }

    void operator()(const std::vector<std::vector<FlashBlock>>& lists, const detail::FlashResult& result) const {
        const std::vector<FlashBlock>& blocks = lists.front();
        const auto d = static_cast<std::size_t>(problem_.q.cols());
        for (std::size_t begin = 0, end = 0; begin < blocks.size(); begin = end) {
            while (end < blocks.size() && blocks[end].kv_row == blocks[begin].kv_row && blocks[end].keys == blocks[begin].keys) ++end;
            const FlashBlock& head = blocks[begin];
            const auto pack = head.keys == 0 ? nullptr : detail::FlashPack::make(problem_, head.kv_row, head.keys, kernels_, isa_);
            const std::int64_t parts = std::ssize(lists), runs = static_cast<std::int64_t>(end - begin) * parts;
            // An observer hears of the parts in their order.
            parallel_for(runs, problem_.observer != nullptr ? runs : 1, [&](std::int64_t first, std::int64_t last) {
                for (std::int64_t n = first; n < last; ++n) {
                    const auto part = static_cast<std::size_t>(n % parts);
                    const FlashBlock& block = lists[part][begin + static_cast<std::size_t>(n / parts)];
                    std::vector<std::uint32_t> o(static_cast<std::size_t>(block.rows) * d), lse(static_cast<std::size_t>(block.rows));
                    run(block, pack.get(), o, lse);
                    result(block, part, o, lse);
                }
            });
        }
    }

private:
    void run(const FlashBlock& block, const detail::FlashPack* pack, std::span<std::uint32_t> o, std::span<std::uint32_t> lse) const {
        const FlashObserver* observer = problem_.observer;
        if (observer != nullptr && (observer->row < block.q_row || observer->row >= block.q_row + block.rows)) return;
        if (block.first_tile >= block.last_tile) {
            std::fill(o.begin(), o.end(), 0);
            std::fill(lse.begin(), lse.end(), problem_.partial ? 0xFF800000 : 0x7F800000);
            if (observer != nullptr) problem_.observer->part(0, 0x3F800000, lse.front(), 0);
            return;
        }
        if (pack != nullptr && flash_block_fast(problem_, block, *pack, o, lse)) return;
        (problem_.cudnn ? detail::cudnn_block_scalar : detail::flash_block_scalar)(problem_, block, o, lse);
    }

    const FlashProblem& problem_;
    const simd::FlashRowKernels* kernels_ = nullptr;
    std::string_view isa_;
};

}  // namespace

void detail::check_attention(const Tensor& q, const Tensor& k, const Tensor& v) {
    const auto fail = [](const std::string& reason) { throw InputError("attention: " + reason); };
    if (q.rank() != 4 || k.rank() != 4 || v.rank() != 4) fail("q, k and v must have four dimensions");
    if (!(q.format() == k.format()) || !(q.format() == v.format())) fail("q, k and v must have one format");
    if (k.shape() != v.shape()) fail("k is " + describe(k) + ", v is " + describe(v));
    if (k.dim(0) != q.dim(0) || k.dim(3) != q.dim(3) || k.dim(1) == 0 || q.dim(1) % k.dim(1) != 0 || q.size() == 0)
        fail("q is " + describe(q) + ", k is " + describe(k));
}

void detail::run_flash_blocks(const FlashProblem& problem,
                              const FlashEngine& engine,
                              const std::vector<std::vector<FlashBlock>>& lists,
                              const FlashResult& result) {
    Runner(problem, engine)(lists, result);
}

AttentionResult flash_attention(const FlashCall& original, const FlashEngine& engine) {
    check(original);
    FlashCall call = original;
    const FlashPlan plan = plan_flash(call);
    const std::vector<std::int64_t> shape = call.q.shape();
    if (plan.groups_as_rows) call.q = call.q.reshape({shape[0], call.k.dim(1), shape[1] / call.k.dim(1), shape[3]});
    const FlashProblem problem{call.q, call.k, call.v, plan, find_rule(call), flash_recipe().instruction_k, detail::FlashMath(call.gpu, call.build.fast_math),
                               call.scale, times_log2e(call.scale), plan.splits > 1, false, engine.observer};

    const auto d = static_cast<std::size_t>(call.q.cols());
    AttentionResult result{Tensor(call.q.format(), shape), Tensor(fp32, {shape[0], shape[1], shape[2]})};
    const auto store = [&](std::int64_t row, std::span<const std::uint32_t> o, std::uint32_t lse) {
        for (std::size_t i = 0; i < d; ++i)
            result.o.set(row * static_cast<std::int64_t>(d) + static_cast<std::int64_t>(i), convert(fp32, call.q.format(), o[i]));
        result.lse.set(row, lse);
    };

    std::vector<std::vector<FlashBlock>> lists;
    for (std::int64_t part = 0; part < plan.splits; ++part) lists.push_back(Blocks(call, plan).list(part));
    const Runner runner(problem, engine);
    if (plan.splits == 1) {
        runner(lists, [&](const FlashBlock& block, std::size_t, std::span<const std::uint32_t> o, std::span<const std::uint32_t> lse) {
            for (std::size_t r = 0; r < lse.size(); ++r)
                store(block.q_row + static_cast<std::int64_t>(r), o.subspan(r * d, d), lse[r]);
        });
        return result;
    }

    // Parts in memory as [row][part][d]: the combining kernel reads them row by row.
    const auto parts = static_cast<std::size_t>(plan.splits), count = static_cast<std::size_t>(call.q.rows());
    std::vector<std::uint32_t> part_o(count * parts * d), part_lse(count * parts);
    runner(lists, [&](const FlashBlock& block, std::size_t part, std::span<const std::uint32_t> o, std::span<const std::uint32_t> lse) {
        for (std::size_t r = 0; r < lse.size(); ++r) {
            const std::size_t at = (static_cast<std::size_t>(block.q_row) + r) * parts + part;
            std::copy_n(o.begin() + static_cast<std::ptrdiff_t>(r * d), d, part_o.begin() + static_cast<std::ptrdiff_t>(at * d));
            part_lse[at] = lse[r];
        }
    });
    parallel_for(call.q.rows(), 16, [&](std::int64_t first, std::int64_t last) {
        std::vector<std::uint32_t> o(d);
        for (std::int64_t row = first; row < last; ++row) {
            if (engine.observer != nullptr && engine.observer->row != row) continue;
            const std::size_t at = static_cast<std::size_t>(row) * parts;
            const std::uint32_t lse = detail::flash_combine_row(problem, std::span<const std::uint32_t>(part_lse).subspan(at, parts),
                                                                std::span<const std::uint32_t>(part_o).subspan(at * d, parts * d), o);
            store(row, o, lse);
        }
    });
    return result;
}

}  // namespace bitreplay
