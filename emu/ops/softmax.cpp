#include "emu/softmax.hpp"

#include <array>

#include "emu/ops/torch_private.hpp"

namespace bitreplay {
namespace {

OpResult run(const OpRequest& request, bool log) {
    request.check_inputs(std::array<std::string_view, 1>{"x"});
    require_torch_kernel(request);
    request.params.finish();
    const Tensor& x = request.input("x");
    const Format result = request.out_format.value_or(x.format());
    return single(as_op(request, [&] { return softmax({request.gpu, x, result, log}); }));
}

}  // namespace

OpResult run_softmax(const OpRequest& request) { return run(request, false); }
OpResult run_log_softmax(const OpRequest& request) { return run(request, true); }

}  // namespace bitreplay
