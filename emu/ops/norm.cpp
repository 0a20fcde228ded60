#include "emu/norm.hpp"

#include <array>

#include "emu/ops/torch_private.hpp"

namespace bitreplay {

OpResult run_rms_norm(const OpRequest& request) {
    require_torch_kernel(request);
    const std::string style = request.params.text("style", "hf");
    const double eps = request.params.real("eps", 1e-6);
    request.params.finish();
    if (style == "hf") {
        request.check_inputs(std::array<std::string_view, 2>{"x", "w"});
        const Tensor& x = request.input("x");
        const RmsNormTask task{request.gpu, x, request.input("w"), eps, request.out_format.value_or(x.format())};
        return single(as_op(request, [&] { return rms_norm_hf(task); }));
    }
    if (style != "torch") request.not_modelled("rms_norm style \"" + style + "\" (known: hf, torch)");
    request.check_inputs(std::array<std::string_view, 2>{"x", "w?"});
    const Tensor& x = request.input("x");
    const LayerNormTask task{.gpu = request.gpu,
                             .x = x,
                             .weight = optional_input(request, "w"),
                             .eps = eps,
                             .result = request.out_format.value_or(x.format()),
                             .rms = true};
    return single(as_op(request, [&] { return layer_norm(task).y; }));
}

OpResult run_layer_norm(const OpRequest& request) {
    request.check_inputs(std::array<std::string_view, 3>{"x", "w?", "bias?"});
    require_torch_kernel(request);
    const double eps = request.params.real("eps", 1e-5);
    request.params.finish();
    const Tensor& x = request.input("x");
    const LayerNormTask task{.gpu = request.gpu,
                             .x = x,
                             .weight = optional_input(request, "w"),
                             .bias = optional_input(request, "bias"),
                             .eps = eps,
                             .result = request.out_format.value_or(x.format())};
    return single(as_op(request, [&] { return layer_norm(task).y; }));
}

}  // namespace bitreplay
