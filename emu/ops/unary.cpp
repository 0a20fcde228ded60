#include "emu/unary.hpp"

#include <array>

#include "emu/ops/torch_private.hpp"

namespace bitreplay {

OpResult run_mufu(const OpRequest& request) {
    request.check_inputs(std::array<std::string_view, 1>{"x"});
    const std::string ptx = request.params.text("ptx", "");
    request.params.finish();
    const Tensor& x = request.input("x");
    if (request.out_format && !(*request.out_format == x.format())) request.fail("out_dtype differs from the format of x");
    return single(as_op(request, [&] { return mufu(mufu(request.gpu), find_mufu_form(ptx), x); }));
}

OpResult run_unary(const OpRequest& request) {
    request.check_inputs(std::array<std::string_view, 1>{"x"});
    require_torch_kernel(request);
    const std::string name = request.params.text("fn", "");
    request.params.finish();
    const cuda::Unary* fn = cuda::find_unary(name);
    if (fn == nullptr) {
        std::string known;
        for (const cuda::Unary& row : cuda::unary_functions()) known += " " + std::string(row.name);
        request.not_modelled("fn \"" + name.substr(0, 60) + "\" (known:" + known + ")");
    }
    const Tensor& x = request.input("x");
    return single(as_op(request, [&] { return unary(mufu(request.gpu), *fn, x, request.out_format.value_or(x.format())); }));
}

}  // namespace bitreplay
