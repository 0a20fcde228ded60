#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "reduction_trees/plan.hpp"

namespace bitreplay {

/// A parameter's value: a number or one of a list of words.
using RecipeValue = std::variant<std::int64_t, std::string>;
using RecipeValues = std::map<std::string, RecipeValue>;

/// A parameter of a recipe, and where its value comes from if the caller records none.
struct RecipeParam {
    std::string name;
    std::int64_t low = 0, high = 0;        ///< a number's range
    std::vector<std::string> words;        ///< or the words it may be (then low = high = 0)
    std::optional<RecipeValue> fallback;
    std::int64_t fallback_bits = 0;        ///< if not 0, the fallback is this many bits of k: 1024 means 64 bf16 elements
    std::string name_regex;                ///< a number or word in the CUDA kernel name: capture group 1
    std::vector<std::pair<std::string, RecipeValue>> name_globs;  ///< or: the first glob that the kernel name matches
    std::vector<std::string> required_if;  ///< must be recorded if a recorded kernel name matches one of these globs
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
    enum class Chunk : std::uint8_t { floor_tiles, ceil_tiles, ceil_multiple };
    enum class Residue : std::uint8_t { last, first, none };
    enum class Rounds : std::uint8_t { whole, any };

    Kind kind = Kind::walk;
    RecipeValues when;  ///< the layer exists only where these parameters have these values ("element_bits" included)
    std::string parts;  ///< split, interleave: the parameter that counts the parts
    std::string size;   ///< tile (split), stripe (interleave), block (blocks), k tile (walk): a parameter
    Chunk chunk = Chunk::floor_tiles;
    std::vector<std::int64_t> multiples;  ///< ceil_multiple: the first that divides K, else the last
    Residue residue = Residue::last;
    Rounds rounds = Rounds::whole;  ///< interleave: whether the last round of stripes may be incomplete
    std::string buffers;            ///< interleave: a parameter "each", "half" or "one"; empty: each
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
    };
    RecipeValues when;
    Add add;
};

/// A family of kernels with one order of summation, from a JSON file.
struct Recipe {
    std::string name;                      ///< as in manifests: cublas.nvjet
    std::string summary;
    std::vector<std::string> kernels;      ///< globs of CUDA kernel names that run it
    std::vector<std::string> companions;   ///< globs of kernels that may be recorded beside it
    std::vector<std::string> families;     ///< instruction families, the first that the GPU has
    std::vector<RecipeBias> bias;          ///< the first that applies; none: with a bias the kernel is not modelled
    std::vector<RecipeParam> params;
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

/// Fills in what `recorded` leaves out, from the kernel names and the fallbacks. A value that contradicts the kernel name
/// throws InputError; one that had to be recorded and was not throws NotModelled.
RecipeValues resolve(const Recipe& recipe,
                     RecipeValues recorded,
                     const std::vector<std::string>& kernel_names,
                     int element_bits);

/// The order of a sum of k products under resolved parameters. Throws NotModelled where the recipe does not say (a
/// residue it has no rule for). covered(plan) < k where the kernel itself drops summands.
Plan make_plan(const Recipe& recipe, const RecipeValues& values, std::int64_t k);

/// How the kernel adds a bias under resolved parameters; nullptr: not modelled.
const RecipeBias* find_bias(const Recipe& recipe, const RecipeValues& values) noexcept;

/// Shell-style match: '*' any run of characters, everything else itself.
bool glob_match(std::string_view pattern, std::string_view text) noexcept;

}  // namespace bitreplay
