#pragma once

#include "emu/ops/op.hpp"
#include "reduction_trees/recipe.hpp"

namespace bitreplay {

/// What ran: the recipe of an op's kernel, its parameters, the instruction's arithmetic and the order of the sum.
struct GemmKernel {
    const Recipe* recipe;
    RecipeValues values;
    const DotRule* rule;
    int instruction_k;
    Plan plan;  ///< of an output outside all regions: see output_regions()
};

/// Finds the kernel of a matrix product with operands of formats a and b and k products per output: by the op's "kernel",
/// or else by its recorded kernel names, or else by what cuBLASLt logged. Throws NotModelled if there is none, if its recipe
/// does not know the logged algorithm, if something had to be recorded, or if the GPU has no such instruction.
GemmKernel choose_gemm_kernel(const OpRequest& request, const Format& a, const Format& b, std::int64_t k);

/// The order in which the k products of an output in a region are summed.
Plan plan_of(const GemmKernel& kernel, const OutputRegion& region, std::int64_t k);

/// The format in which a recipe's kernels multiply operands of a stored format: FP32 may be rounded (to tf32) first.
Format operand_format(const Recipe& recipe, const Format& stored);

}  // namespace bitreplay
