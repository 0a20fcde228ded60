// Which output tiles of a persistent kernel are shared by several CTAs, and by how many. Sources: tools/capture/probe_segments.py
// (+B and −B in neighbouring tiles of k show where a sum is cut and which parts meet first): rules found on 1,501
// configurations and then equal, tile by tile, on all of 277 others that are modelled; testdata/h200/gemm.

#include <algorithm>

#include "formats/error.hpp"
#include "reduction_trees/recipe.hpp"

namespace bitreplay {
namespace {

std::int64_t ceil_div(std::int64_t a, std::int64_t b) noexcept { return (a + b - 1) / b; }

/// The grid of clusters over the output.
struct ClusterGrid {
    const Recipe& recipe;
    const RecipeValues& values;
    std::int64_t m, n;

    std::int64_t param(const std::string& name) const { return std::get<std::int64_t>(values.at(name)); }
    const RecipeSegments& names() const { return *recipe.segments; }
    std::int64_t height() const { return param(names().tile_m) * param(names().cluster_m); }  // of a cluster
    std::int64_t width() const { return param(names().tile_n) * param(names().cluster_n); }
    std::int64_t ctas_of_cluster() const { return param(names().cluster_m) * param(names().cluster_n); }
    std::int64_t down() const { return ceil_div(m, height()); }
    std::int64_t across() const { return ceil_div(n, width()); }
    std::int64_t at_once() const { return param(names().ctas) / ctas_of_cluster(); }

    [[noreturn]] void not_modelled(const std::string& what) const {
        throw NotModelled("kernel " + recipe.name + ": " + what + " is not modelled");
    }

    /// Clusters of CTAs per cluster of tiles in the last round, from the workspace: nothing else tells how many the library
    /// chose. After the tiles of partial sums come counters and up to 131 bytes of alignment (all 262 probes).
    std::int64_t sharers_of(std::int64_t rest) const {
        const std::int64_t tile = param(names().tile_m) * param(names().tile_n) * names().bytes;
        const std::int64_t buffer = rest * ctas_of_cluster() * tile, workspace = param(names().workspace);
        const std::int64_t count = workspace / buffer, counters = workspace % buffer - 131;
        if (workspace == 0) not_modelled("a partial round of tiles whose workSpaceSizeInBytes was not recorded");
        if (count < 2 || count * rest > at_once() || counters < 0 || counters > 4 * (count * rest * ctas_of_cluster() + 64))
            not_modelled("a partial round of " + std::to_string(rest) + " clusters with a workspace of " + std::to_string(workspace) + " bytes");
        return count;
    }
};

}  // namespace

std::vector<OutputRegion> output_regions(const Recipe& recipe, const RecipeValues& values, std::int64_t m, std::int64_t n) {
    if (!recipe.segments) return {{{0, m}, {0, n}, values}};
    const ClusterGrid grid{recipe, values, m, n};
    // Probes of kernels with an operand along n show other partitions than clusters give, even where all tiles fit at once.
    if (grid.param(grid.names().along_k) == 0) grid.not_modelled("segments with an operand along n");
    const std::int64_t down = grid.down(), across = grid.across(), at_once = grid.at_once();
    if (at_once == 0 || grid.param(grid.names().ctas) % grid.ctas_of_cluster() != 0)
        throw InputError("kernel " + recipe.name + ": a grid of " + std::to_string(grid.param(grid.names().ctas)) +
                         " CTAs does not consist of clusters of " + std::to_string(grid.ctas_of_cluster()));
    RecipeValues shared = values;
    const std::int64_t rest = down * across % at_once, whole = down * across - rest;
    if (whole == 0 || rest == 0) {
        shared[recipe.segments->parts] = whole == 0 ? at_once / (down * across) : 1;
        return {{{0, m}, {0, n}, std::move(shared)}};
    }
    // Rows of clusters are walked there and back. Wide clusters can be walked by columns, swizzled ones in bands of either.
    if (down > 1 && across > 1 && (grid.param(grid.names().swizzle) != 0 || grid.width() > grid.height()))
        grid.not_modelled("a partial round of " + std::string(grid.width() > grid.height() ? "wide" : "swizzled") + " clusters");
    shared[recipe.segments->parts] = grid.sharers_of(rest);
    const std::int64_t row = whole / across, columns = whole % across;  // of the first row with shared tiles: columns that are not
    const bool back = row % 2 == 1;
    const auto y = [&](std::int64_t at) { return std::min(m, at * grid.height()); };
    const auto x = [&](std::int64_t at) { return std::min(n, at * grid.width()); };
    std::vector<OutputRegion> out;
    const auto add = [&](const Range& rows, const Range& cols, const RecipeValues& how) {
        if (rows.begin < rows.end && cols.begin < cols.end) out.push_back({rows, cols, how});
    };
    const std::int64_t cut = x(back ? across - columns : columns);
    add({0, y(row)}, {0, n}, values);
    add({y(row), y(row + 1)}, {0, cut}, back ? shared : values);
    add({y(row), y(row + 1)}, {cut, n}, back ? values : shared);
    add({y(row + 1), m}, {0, n}, shared);
    return out;
}

}  // namespace bitreplay
