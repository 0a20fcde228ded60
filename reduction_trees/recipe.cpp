#include "reduction_trees/recipe.hpp"

#include <algorithm>
#include <bit>

#include "formats/error.hpp"
#include "reduction_trees/reduce.hpp"

namespace bitreplay {
namespace {

std::int64_t ceil_div(std::int64_t a, std::int64_t b) noexcept { return (a + b - 1) / b; }

std::int64_t number(const RecipeValues& values, const std::string& name) { return std::get<std::int64_t>(values.at(name)); }

bool applies(const RecipeValues& when, const RecipeValues& values) {
    return std::all_of(when.begin(), when.end(), [&](const auto& item) { return values.at(item.first) == item.second; });
}

/// Builds the tree below layer `at` for the summands of `ranges`; extent: the length of a whole part, of which these may
/// be the shorter last one.
class Builder {
public:
    Builder(const Recipe& recipe, const RecipeValues& values, std::int64_t k) : recipe_(recipe), values_(values), k_(k) {}

    Plan build(std::size_t at, const std::vector<Range>& ranges, std::int64_t extent) const {
        for (; at < recipe_.layers.size(); ++at)
            if (applies(recipe_.layers[at].when, values_)) break;
        // Without ranges: a part beyond the end of K, which is +0 in any order.
        if (ranges.empty() || at == recipe_.layers.size())
            return {.kind = Plan::Kind::walk, .ranges = ranges, .parts = {}, .merge = {}};
        const RecipeLayer& layer = recipe_.layers[at];
        std::vector<std::vector<Range>> parts;
        switch (layer.kind) {
            case RecipeLayer::Kind::walk: return walk(layer, ranges);
            case RecipeLayer::Kind::lanes: return lanes(layer, ranges, extent);
            case RecipeLayer::Kind::split: parts = split(layer, ranges, extent); break;
            case RecipeLayer::Kind::interleave: return interleave(layer, at, ranges, extent);
            case RecipeLayer::Kind::blocks: parts = blocks(layer, ranges); break;
        }
        if (parts.size() == 1) return build(at + 1, parts.front(), extent);
        Plan plan{.kind = Plan::Kind::merge, .ranges = {}, .parts = {}, .merge = layer.merge};
        for (const auto& part : parts) plan.parts.push_back(build(at + 1, part, extent));
        return layer.paired ? paired(plan.parts, 0, plan.parts.size(), layer.merge) : plan;
    }

private:
    [[noreturn]] void not_modelled(const std::string& reason) const {
        throw NotModelled("kernel " + recipe_.name + ": " + reason + " for K = " + std::to_string(k_) + " is not modelled");
    }

    /// Contiguous parts of equal length, the last one shorter. floor_tiles can end before the range does: the kernel
    /// really leaves those summands out.
    std::vector<std::vector<Range>> split(const RecipeLayer& layer, const std::vector<Range>& ranges, std::int64_t& extent) const {
        const auto [begin, end] = ranges.front();
        const std::int64_t k = end - begin;
        std::int64_t count = number(values_, layer.parts);
        if (count == 1) return {ranges};
        std::int64_t chunk = 0;
        if (layer.chunk == RecipeLayer::Chunk::even_tiles) return even_tiles(layer, ranges.front(), count);
        if (layer.chunk == RecipeLayer::Chunk::ceil_multiple) {
            const auto divides = std::find_if(layer.multiples.begin(), layer.multiples.end(), [&](std::int64_t m) { return k % m == 0; });
            const std::int64_t multiple = divides == layer.multiples.end() ? layer.multiples.back() : *divides;
            chunk = ceil_div(ceil_div(k, count), multiple) * multiple;
        } else {
            const std::int64_t tile = number(values_, layer.size);
            chunk = layer.chunk == RecipeLayer::Chunk::ceil_tiles ? ceil_div(ceil_div(k, tile), count) * tile
                                                                   : ceil_div(k / count, tile) * tile;
        }
        if (layer.chunk == RecipeLayer::Chunk::floor_tiles_all) {
            if (k < count) not_modelled("fewer products than parts");
            count = ceil_div(k, chunk);
        }
        extent = chunk;
        std::vector<std::vector<Range>> parts;
        for (std::int64_t s = 0; s < count; ++s) {
            const Range part{std::min(end, begin + s * chunk), std::min(end, begin + (s + 1) * chunk)};
            parts.push_back(part.begin < part.end ? std::vector{part} : std::vector<Range>{});
        }
        return parts;
    }

    /// Parts of whole tiles, the last ones one tile longer where their number does not divide.
    std::vector<std::vector<Range>> even_tiles(const RecipeLayer& layer, const Range& range, std::int64_t count) const {
        const std::int64_t tile = number(values_, layer.size), tiles = ceil_div(range.end - range.begin, tile);
        if (tiles < count) not_modelled("fewer tiles than parts");
        const auto cut = [&](std::int64_t s) {
            const std::int64_t at = s * (tiles / count) + std::max<std::int64_t>(0, s - (count - tiles % count));
            return std::min(range.end, range.begin + at * tile);
        };
        std::vector<std::vector<Range>> parts;
        for (std::int64_t s = 0; s < count; ++s) parts.push_back({{cut(s), cut(s + 1)}});
        return parts;
    }

    /// Parts [first, last) in pairs of sums: the last ones, as many as the largest power of two below their number, and
    /// those before them.
    static Plan paired(const std::vector<Plan>& parts, std::size_t first, std::size_t last, const Merge& merge) {
        if (last - first == 1) return parts[first];
        const std::size_t middle = last - std::bit_floor(last - first - 1);
        return {.kind = Plan::Kind::merge,
                .ranges = {},
                .parts = {paired(parts, first, middle, merge), paired(parts, middle, last, merge)},
                .merge = merge};
    }

    /// Stripes dealt out in turn: part p walks stripes p, p + parts, … Unless ragged only whole rounds: no source says more.
    Plan interleave(const RecipeLayer& layer, std::size_t at, const std::vector<Range>& ranges, std::int64_t extent) const {
        const std::int64_t count = number(values_, layer.parts), stripe = number(values_, layer.size);
        if (count == 1) return build(at + 1, ranges, extent);
        Plan plan{.kind = Plan::Kind::merge, .ranges = {}, .parts = {}, .merge = layer.merge};
        plan.parts.resize(static_cast<std::size_t>(count));
        for (const auto& [begin, end] : ranges) {
            if (!layer.ragged && (end - begin) % (stripe * count) != 0) not_modelled("a K that the sliced tile does not divide");
            for (std::int64_t k = begin, p = 0; k < end; k += stripe, p = (p + 1) % count)
                plan.parts[static_cast<std::size_t>(p)].ranges.push_back({k, std::min(k + stripe, end)});
        }
        const std::string buffers = layer.buffers.empty() ? "each" : std::get<std::string>(values_.at(layer.buffers));
        return buffers == "each" ? plan : buffered(std::move(plan), buffers == "half" ? ceil_div(count, 2) : 1);
    }

    /// All parts but the last are summed in `buffers` running sums, part p in buffer p % buffers; the last part then adds
    /// the buffers to its own sum, in order.
    static Plan buffered(Plan plan, std::int64_t buffers) {
        std::vector<Plan> sums;
        for (std::size_t p = 0; p + 1 < plan.parts.size(); ++p) {
            const std::size_t at = p % static_cast<std::size_t>(buffers);
            if (at == sums.size())
                sums.push_back({.kind = Plan::Kind::merge, .ranges = {}, .parts = {}, .merge = plan.merge});
            sums[at].parts.push_back(std::move(plan.parts[p]));
        }
        plan.parts.erase(plan.parts.begin(), plan.parts.end() - 1);
        for (Plan& sum : sums) plan.parts.push_back(sum.parts.size() == 1 ? std::move(sum.parts.front()) : std::move(sum));
        return plan;
    }

    /// The value of a number or parameter.
    std::int64_t factor(const RecipeValue& value) const {
        return std::holds_alternative<std::string>(value) ? number(values_, std::get<std::string>(value)) : std::get<std::int64_t>(value);
    }

    Plan lanes(const RecipeLayer& layer, const std::vector<Range>& ranges, std::int64_t extent) const {
        Plan plan{.kind = Plan::Kind::lanes, .ranges = ranges, .parts = {}, .merge = {}};
        plan.lanes.count = 1;
        for (const RecipeValue& value : layer.lanes) plan.lanes.count *= factor(value);
        plan.lanes.vector = layer.vector ? factor(*layer.vector) : std::min(layer.slice, ceil_div(extent, plan.lanes.count));
        if (layer.restart) plan.lanes.chunk = factor(*layer.restart);
        std::int64_t present = used_lanes(plan);
        for (const RecipeFold& item : layer.folds) {
            LaneFold fold{.kind = item.kind, .outer = 1, .terms = 0, .inner = factor(item.apart), .present = present};
            fold.terms = item.terms ? factor(*item.terms) : ceil_div(present, fold.inner);
            fold.outer = ceil_div(present, fold.terms * fold.inner);
            present = fold.outer * fold.inner;
            plan.lanes.folds.push_back(fold);
        }
        if (present != 1) not_modelled("a fold of lanes that leaves " + std::to_string(present) + " sums");
        return plan;
    }

    std::vector<std::vector<Range>> blocks(const RecipeLayer& layer, const std::vector<Range>& ranges) const {
        const std::int64_t size = number(values_, layer.size);
        std::vector<std::vector<Range>> parts;
        for (const auto& [begin, end] : ranges)
            for (std::int64_t k = begin; k < end; k += size) parts.push_back({{k, std::min(k + size, end)}});
        return parts;
    }

    Plan walk(const RecipeLayer& layer, const std::vector<Range>& ranges) const {
        Plan plan{.kind = Plan::Kind::walk, .ranges = {}, .parts = {}, .merge = {}};
        plan.from_product = layer.from_product;
        for (const auto& [begin, end] : ranges) {
            const std::int64_t rest = layer.residue == RecipeLayer::Residue::last ? 0 : (end - begin) % number(values_, layer.size);
            if (rest != 0 && layer.residue == RecipeLayer::Residue::none) not_modelled("a K that the tile does not divide");
            if (rest != 0) plan.ranges.push_back({begin, begin + rest});
            if (begin + rest < end) plan.ranges.push_back({begin + rest, end});
        }
        return plan;
    }

    const Recipe& recipe_;
    const RecipeValues& values_;
    std::int64_t k_;
};

}  // namespace

Plan make_plan(const Recipe& recipe, const RecipeValues& values, std::int64_t k) {
    if (k == 0) return {};
    if (recipe.max_k != 0 && k > recipe.max_k)
        throw NotModelled("kernel " + recipe.name + ": K = " + std::to_string(k) + " is not modelled");
    return Builder(recipe, values, k).build(0, {{0, k}}, k);
}

}  // namespace bitreplay
