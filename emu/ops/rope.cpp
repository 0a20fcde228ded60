#include "emu/rope.hpp"

#include <array>

#include "emu/ops/torch_private.hpp"

namespace bitreplay {

OpResult run_rope(const OpRequest& request) {
    request.check_inputs(std::array<std::string_view, 3>{"x", "cos", "sin"});
    require_torch_kernel(request);
    const std::string style = request.params.text("style", "hf");
    request.params.finish();
    if (style != "hf") request.not_modelled("rope style \"" + style + "\" (known: hf)");
    const Tensor& x = request.input("x");
    if (request.out_format && *request.out_format != x.format())
        request.not_modelled("rope to another format than x's");
    return single(as_op(request, [&] { return rope_hf(x, request.input("cos"), request.input("sin")); }));
}

OpResult run_rope_table(const OpRequest& request) {
    request.check_inputs(std::array<std::string_view, 1>{"inv_freq"});
    require_torch_kernel(request);
    if (!request.params.has("positions")) request.fail("params: missing key \"positions\"");
    const std::vector<std::int64_t> positions = request.params.integers("positions");
    request.params.finish();
    const Format result = request.out_format.value_or(fp32);
    RopeTable table =
        as_op(request, [&] { return rope_table(request.gpu, request.input("inv_freq"), positions, result); });
    OpResult out;
    out.out.emplace("cos", std::move(table.cos));
    out.out.emplace("sin", std::move(table.sin));
    return out;
}

}  // namespace bitreplay
