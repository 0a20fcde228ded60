#include "emu/elementwise.hpp"

#include <array>

#include "emu/ops/torch_private.hpp"

namespace bitreplay {
namespace {

OpResult run(const OpRequest& request, Binary op) {
    request.check_inputs(std::array<std::string_view, 2>{"a", "b"});
    require_torch_kernel(request);
    request.params.finish();
    const Tensor& a = request.input("a");
    const Tensor& b = request.input("b");
    if (!request.out_format && a.format() != b.format() && a.rank() != 0 && b.rank() != 0)
        request.fail("out_dtype is needed: a is " + describe(a) + " and b " + describe(b));
    const Format result = request.out_format.value_or(a.rank() == 0 ? b.format() : a.format());
    return single(as_op(request, [&] { return binary(op, a, b, result); }));
}

}  // namespace

OpResult run_add(const OpRequest& request) { return run(request, Binary::add); }
OpResult run_mul(const OpRequest& request) { return run(request, Binary::mul); }

}  // namespace bitreplay
