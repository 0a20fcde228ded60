// Op `decoder_layer`: a whole transformer layer, stage by stage.

#include "emu/blocks/block.hpp"
#include "formats/error.hpp"

namespace bitreplay {

OpResult run_decoder_layer(const OpRequest& request) {
    const std::string model = request.params.text("model", request.config ? request.config->text("model_type", "") : "");
    const BlockFunction block = find_block(model);
    if (block == nullptr) request.not_modelled("model \"" + model + "\"");
    for (const auto& [name, tensor] : request.in)
        if (name != "hidden" && name != "inv_freq" && name != "k_cache" && name != "v_cache" && !name.starts_with("weights/"))
            request.fail("unknown input \"" + name + "\"");
    request.params.ignore("attention");
    OpResult result;
    result.main = "out";
    LayerRun run(request, [&](const std::string& stage, const Tensor& tensor) { result.out[stage] = tensor; });
    request.params.finish();
    try {
        block(run);
        run.check_all_used();
    } catch (const NotModelled& error) {
        result.not_modelled[""] = error.what();
    }
    result.not_modelled.insert(run.missing().begin(), run.missing().end());
    return result;
}

}  // namespace bitreplay
