#include "emu/ops/reduce.hpp"

#include <array>
#include <utility>

#include "emu/ops/torch_private.hpp"

namespace bitreplay {

ReduceTask reduce_task(const OpRequest& request) {
    constexpr std::pair<std::string_view, ReduceFunction> functions[] = {
        {"sum", ReduceFunction::sum},
        {"mean", ReduceFunction::mean},
        {"mean_sq", ReduceFunction::mean_sq},
        {"max", ReduceFunction::max},
        {"logsumexp", ReduceFunction::logsumexp},
    };
    request.check_inputs(std::array<std::string_view, 1>{"x"});
    require_torch_kernel(request);
    const std::string name = request.params.text("fn", "");
    // Where the tensor begins decides how vector loads are cut; a fresh tensor begins on a boundary.
    const std::int64_t offset = request.params.integer("storage_offset", 0, 0, INT64_MAX / 2);
    request.params.finish();
    const Tensor& x = request.input("x");
    for (const auto& [known, function] : functions) {
        if (name != known) continue;
        const bool widens = function == ReduceFunction::mean_sq;
        const Format result = request.out_format.value_or(widens ? fp32 : x.format());
        return {request.gpu, function, x, result, offset};
    }
    if (!name.empty()) request.not_modelled("reduction \"" + name + "\"");
    request.fail("params: missing key \"fn\"");
}

OpResult run_reduce(const OpRequest& request) {
    const ReduceTask task = reduce_task(request);
    return single(as_op(request, [&] { return reduce(task); }));
}

}  // namespace bitreplay
