#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "reduction_trees/cublaslt_log.hpp"
#include "reduction_trees/plan.hpp"

namespace bitreplay {

/// A parameter's value: a number or one of a list of words.
using RecipeValue = std::variant<std::int64_t, std::string>;
using RecipeValues = std::map<std::string, RecipeValue>;
/// The word, or the number in decimal.
std::string value_text(const RecipeValue& value);

/// A parameter in cuBLASLt's log.
struct LogSource {
    std::string field;                          ///< as parse_cublaslt_log names it
    std::optional<RecipeValue> absent;          ///< what it means that the log leaves the field out; none: nothing
    std::map<std::string, RecipeValue> values;  ///< what each of its words means; another word is not modelled
    std::string regex;                          ///< or: the number is capture group 1; no match says nothing
};

/// A parameter of a recipe, and where its value comes from if the caller records none.
struct RecipeParam {
    std::string name;
    std::int64_t low = 0, high = 0;        ///< a number's range
    std::vector<std::string> words;        ///< or the words it may be (then low = high = 0)
    std::optional<RecipeValue> fallback;
    std::int64_t fallback_bits = 0;        ///< if not 0, the fallback is this many bits of k: 1024 means 64 bf16 elements
    std::string name_regex;                ///< a number or word in the CUDA kernel name: capture group 1
    std::vector<std::pair<std::string, RecipeValue>> name_globs;  ///< or: the first glob that the kernel name matches
    std::vector<std::pair<std::string, RecipeValue>> companion_globs;  ///< or: the first that any recorded kernel matches
    std::optional<LogSource> log;
    bool needs_name = false;  ///< a log without kernel names does not tell it: no fallback then
    bool hidden_by_addend = false;  ///< kernel names without a log do not tell it where a bias or c is added
    std::vector<std::string> required_if;  ///< must be recorded if a recorded kernel name matches one of these globs
};

/// What decides nothing but is in the kernel name and in cuBLASLt's log: a pair that does not agree is not of one product.
struct RecipeFact {
    RecipeParam told;       ///< a field that the log leaves out counts only if the log describes the computation
    bool doubtful = false;  ///< all captures agree, but they may not show every case: not modelled instead of bad input
};

/// Values of parameters that another one stands for: a kernel's option numbers its variants.
struct RecipeTable {
    struct Row {
        std::vector<std::int64_t> values;
        RecipeValues set;
    };
    std::string param;      ///< a value in no row is not modelled
    std::vector<Row> rows;
};

/// A fold of lanes as a recipe writes it: a factor is a number or a parameter.
struct RecipeFold {
    LaneFold::Kind kind = LaneFold::Kind::serial;
    std::optional<RecipeValue> terms;  ///< none: as many as there are
    RecipeValue apart = std::int64_t{1};
};

/// One level of a recipe, from the outside in; see recipe.cpp for what each kind does with a range of k.
struct RecipeLayer {
    enum class Kind : std::uint8_t { split, interleave, blocks, walk, lanes };
    enum class Chunk : std::uint8_t {
        floor_tiles,      ///< floor(K / parts) rounded up to tiles; what lies beyond so many parts is left out
        floor_tiles_all,  ///< the same, with as many parts as K needs
        ceil_tiles,       ///< ceil(tiles / parts) tiles
        ceil_multiple,    ///< ceil(K / parts) rounded up to one of `multiples`
        even_tiles,       ///< floor(tiles / parts) tiles, the last tiles % parts of the parts one more
    };
    enum class Residue : std::uint8_t { last, first, none };

    Kind kind = Kind::walk;
    RecipeValues when;  ///< the layer exists only where these parameters have these values ("element_bits" and "gelu" included)
    std::string parts;  ///< split, interleave: the parameter that counts the parts
    std::string size;   ///< tile (split), stripe (interleave), block (blocks), k tile (walk): a parameter
    Chunk chunk = Chunk::floor_tiles;
    std::vector<std::int64_t> multiples;  ///< ceil_multiple: the first that divides K, else the last
    Residue residue = Residue::last;
    bool from_product = false;  ///< walk
    bool ragged = false;  ///< interleave: K need not be whole rounds of stripes, the last stripe may be short
    bool paired = false;  ///< split: parts are summed in a tree: the last 2^n, fewer than all, and the rest, each such a tree
    std::string buffers;  ///< interleave: a parameter "each", "half" or "one"; empty: each
    Merge merge;

    std::vector<RecipeValue> lanes;   ///< lanes: the product of these factors
    std::optional<RecipeValue> vector;  ///< lanes: consecutive summands of a lane; none: a slice of the part each ...
    std::int64_t slice = 0;             ///< ... of at most this many
    std::optional<RecipeValue> restart;
    std::vector<RecipeFold> folds;
};

/// How a bias is added where these parameters have these values.
struct RecipeBias {
    enum class Add : std::uint8_t {
        accumulator,  ///< to the accumulator in FP32, then one rounding to the output type
        rounded,      ///< to the result already rounded to the output type, in FP32, then a second rounding
        first_part,   ///< in FP32 to the first of the parts that the outermost merge combines
    };
    RecipeValues when;
    Add add;
};

/// How alpha·acc + beta·c is computed in FP32 before the rounding to the output type, where these parameters have these
/// values.
struct RecipeAddend {
    enum class Order : std::uint8_t {
        fma_alpha,  ///< fma(alpha, acc, beta·c)
        fma_beta,   ///< fma(beta, c, alpha·acc)
        separate,   ///< alpha·acc + beta·c, each operation rounded
        rounded,    ///< alpha·acc rounded to the output type, + c; beta is 1
        first_part, ///< c enters the first of the parts of the outermost merge; alpha and beta are 1
        serial_fma_alpha,  ///< fma_alpha with the first of these parts; then fma(alpha, part, what is there) with each further one
        serial_fma_beta,   ///< fma_beta with the first; then alpha·part is added
        each_part,  ///< beta·c comes first, then alpha times each part of the outermost merge is added, in order
        alpha_x,    ///< alpha·x rounded to FP32 takes the place of x in the sum; then fma(beta, c, acc)
        alpha_vector,  ///< the same with the one row of w where N is 1
        from_c,        ///< the chain starts at beta·c, with alpha·w in place of w: fma(x, alpha·w, beta·c) of an outer product
    };
    RecipeValues when;
    /// Where the captures leave several orders possible: all of them. An output is then known if they agree on it.
    std::vector<Order> orders;
};

/// Whether alpha is multiplied into an operand before the sum.
constexpr bool scales_operand(RecipeAddend::Order order) noexcept {
    using Order = RecipeAddend::Order;
    return order == Order::alpha_x || order == Order::alpha_vector || order == Order::from_c;
}

/// A grid of persistent CTAs over output tiles, in clusters: whole rounds of clusters are single walks; each of the `rest`
/// clusters of the last, partial round is shared by so many clusters of CTAs as the library chose. The names are parameters.
struct RecipeSegments {
    std::string parts;           ///< set for a region of the output: how many CTAs share each of its tiles
    std::string tile_m, tile_n;  ///< rows and columns of an output tile
    std::string ctas;            ///< CTAs in the grid
    std::string cluster_m, cluster_n;  ///< tiles of a cluster along M and N
    std::string swizzle;         ///< 1: another order of clusters
    std::string along_k;         ///< 1: both operands are contiguous along k
    std::string workspace;       ///< bytes that the library asked for: a tile per CTA that shares one, and counters
    std::int64_t bytes = 4;      ///< of an accumulator there
};

/// A family of kernels with one order of summation, from a JSON file.
struct Recipe {
    std::string name;                      ///< as in manifests: cublas.nvjet
    std::string summary;
    std::vector<std::string> kernels;      ///< globs of CUDA kernel names that run it
    std::vector<std::string> companions;   ///< globs of kernels that may be recorded beside it
    std::vector<std::string> families;     ///< instruction families, the first that the GPU has
    std::vector<std::int64_t> algorithms;  ///< cuBLASLt's algoId of these kernels; empty: not chosen from its log
    std::vector<std::string> compute;      ///< computeType of the log with which they run; empty: any
    std::vector<std::string> activation_kernels;  ///< globs of kernel names that tell of an activation, but not which
    std::vector<std::string> operands;     ///< of these formats (tf32: also FP32 that is rounded to it, nearest even); empty: any but FP32
    std::vector<std::pair<std::string, std::string>> named_operands;  ///< glob of a kernel name, format of both operands that it tells
    std::string accumulator;               ///< format of the accumulator, "" for FP32 (FP64 of FP64 operands)
    std::vector<RecipeBias> bias;          ///< the first that applies; none: with a bias the kernel is not modelled
    std::vector<RecipeAddend> addend;      ///< the same for alpha and beta·c
    std::vector<RecipeValues> gelu;        ///< where GELU after the kernel (its reduction or one of its own) is modelled
    std::vector<RecipeValues> gelu_in_kernel;  ///< where the GELU that the kernel computes itself is
    std::optional<RecipeSegments> segments;
    bool plus_zero = false;  ///< without an addend +0 is added where beta·c would be: a sum of -0 becomes +0
    std::vector<RecipeParam> params;
    std::vector<RecipeFact> facts;
    std::vector<RecipeTable> tables;
    std::vector<RecipeLayer> layers;
    std::int64_t max_k = 0;                ///< if not 0: sums of more products are not modelled
    std::string evidence_level, evidence;  ///< measured, published or unverified; and by what

    const RecipeParam* find_param(std::string_view param) const noexcept;
};

/// All recipes, by file and position.
const std::vector<Recipe>& recipes();
/// The recipe of that name; throws NotModelled (naming a near one) for unknown names.
const Recipe& find_recipe(std::string_view name);
/// The recipe of a list of recorded kernel names: one of them must match its `kernels` and all others its
/// `companions`. nullptr if none does: the op is not modelled.
const Recipe* match_recipe(const std::vector<std::string>& kernel_names);

/// Whether a recipe's kernels are those of a logged algorithm and computeType.
bool fits_log(const Recipe& recipe, const CublasLtFields& log);
/// The recipes of a logged algorithm, in the order of recipes(); if some know what the log says of the parameters that
/// their tables are about (an option), only those.
std::vector<const Recipe*> recipes_of(const CublasLtFields& log);

/// `has_addend`: the product has a bias or c.
/// Fills in what `recorded` leaves out, from the kernel names, cuBLASLt's log (nullptr: none) and the fallbacks. Values
/// that contradict each other throw InputError; one that had to be recorded and was not, or a logged one that the recipe
/// does not know, throws NotModelled.
RecipeValues resolve(const Recipe& recipe,
                     RecipeValues recorded,
                     const std::vector<std::string>& kernel_names,
                     int element_bits,
                     const CublasLtFields* log = nullptr,
                     bool has_addend = false);

/// A rectangle of the output and the parameters under which it is summed.
struct OutputRegion {
    Range rows, cols;
    RecipeValues values;
};

/// The output [m, n] cut into regions of one order each; one region if the recipe has no segments. Throws NotModelled for
/// an order of tiles that no capture shows.
std::vector<OutputRegion> output_regions(const Recipe& recipe, const RecipeValues& values, std::int64_t m, std::int64_t n);

/// The order of a sum of k products under resolved parameters. Throws NotModelled where the recipe does not say (a
/// residue it has no rule for). covered(plan) < k where the kernel itself drops summands.
Plan make_plan(const Recipe& recipe, const RecipeValues& values, std::int64_t k);

/// How the kernel adds a bias, or alpha and beta·c, under resolved parameters ("gelu" set to 1 if GELU follows); nullptr: not
/// modelled.
const RecipeBias* find_bias(const Recipe& recipe, const RecipeValues& values) noexcept;
const RecipeAddend* find_addend(const Recipe& recipe, const RecipeValues& values) noexcept;
/// Whether one of these conditions holds.
bool any_applies(const std::vector<RecipeValues>& conditions, const RecipeValues& values) noexcept;

/// Shell-style match: '*' any run of characters, everything else itself.
bool glob_match(std::string_view pattern, std::string_view text) noexcept;
/// Whether one of the patterns does.
bool any_glob_match(std::span<const std::string> patterns, std::string_view text) noexcept;

}  // namespace bitreplay
