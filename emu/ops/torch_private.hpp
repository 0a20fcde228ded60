#pragma once

#include "emu/ops/op.hpp"
#include "formats/error.hpp"

namespace bitreplay {

/// The ops that are PyTorch kernels know one version of them: "torch.2.11" (also spelled "torch"), the default. Another
/// "kernel" is not modelled.
inline void require_torch_kernel(const OpRequest& request) {
    if (!request.kernel.empty() && request.kernel != "torch" && request.kernel != "torch.2.11")
        request.not_modelled("kernel \"" + request.kernel + "\" (known: torch.2.11)");
}

/// The tensor of an optional input, or nullptr.
inline const Tensor* optional_input(const OpRequest& request, const std::string& name) {
    const auto found = request.in.find(name);
    return found == request.in.end() ? nullptr : &found->second;
}

/// The result of an op with one output.
inline OpResult single(Tensor tensor) {
    OpResult out;
    out.out.emplace("", std::move(tensor));
    return out;
}

/// Runs a library function; what it throws names this op as well.
template <class Function>
auto as_op(const OpRequest& request, Function function) {
    try {
        return function();
    } catch (const NotModelled& error) {
        request.not_modelled(error.what());
    } catch (const InputError& error) {
        request.fail(error.what());
    }
}

}  // namespace bitreplay
