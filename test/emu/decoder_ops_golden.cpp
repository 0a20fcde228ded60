// The non-GEMM stages of the captured decoder layer, each from recorded inputs.

#include <catch2/catch.hpp>
#include <numeric>

#include "emu/cuda_math.hpp"
#include "emu/elementwise.hpp"
#include "emu/fp32_rows.hpp"
#include "emu/io/synthetic.hpp"
#include "emu/norm.hpp"
#include "emu/rope.hpp"
#include "test/emu/tally.hpp"
#include "test/support/support.hpp"

using namespace bitreplay;
using test::Tally;

namespace {

Tensor norm_weight(std::uint64_t seed, std::int64_t width) {
    return synthetic({.seed = seed, .exp2 = -3, .plus = 0x3F800000, .format = bf16, .shape = {width}});
}

void check_layer(const std::string& name) {
    const auto path = test::captures() / "h200/block" / (name + ".safetensors");
    if (!exists(path)) return test::skip("no captures beside the repository");
    const SafetensorsFile file = SafetensorsFile::open(path);
    const Gpu& gpu = find_gpu("h200");
    const std::int64_t tokens = 192, hidden = 1024, head = 128;
    const double eps = 1e-6;
    Tally tally;
    const auto check = [&](const std::string& stage, const Tensor& got) {
        tally.compare(stage, file.stored(stage), got);
    };
    const auto recorded = [&](const std::string& stage) { return file.tensor(stage); };

    const Tensor x = synthetic({.seed = 10100, .exp2 = 2, .format = bf16, .shape = {tokens, hidden}});
    check("ln1", rms_norm_hf({gpu, x, norm_weight(10009, hidden), eps, bf16}));
    check("q_norm", rms_norm_hf({gpu, recorded("q").reshape({tokens, 8, head}), norm_weight(10004, head), eps, bf16}));
    check("k_norm", rms_norm_hf({gpu, recorded("k").reshape({tokens, 2, head}), norm_weight(10005, head), eps, bf16}));

    std::vector<std::int64_t> positions(static_cast<std::size_t>(tokens));
    std::iota(positions.begin(), positions.end(), 0);
    const RopeTable table = rope_table(gpu, recorded("inv_freq"), positions, bf16);
    check("cos", table.cos);
    check("sin", table.sin);
    check("q_rope", rope_hf(recorded("q_norm"), recorded("cos"), recorded("sin")));
    check("k_rope", rope_hf(recorded("k_norm"), recorded("cos"), recorded("sin")));

    check("resid_mid", binary(Binary::add, x, recorded("o"), bf16));
    check("ln2", rms_norm_hf({gpu, recorded("resid_mid"), norm_weight(10010, hidden), eps, bf16}));
    Tensor act(bf16, {tokens, 3072});
    std::vector<std::uint32_t> gate(static_cast<std::size_t>(act.size()));
    load_fp32(recorded("gate"), 0, gate);
    for (std::uint32_t& value : gate) value = cuda::silu(mufu(gpu), value);
    store_fp32(act, 0, gate);
    check("act", act);
    check("prod", binary(Binary::mul, recorded("act"), recorded("up"), bf16));
    check("out", binary(Binary::add, recorded("resid_mid"), recorded("down"), bf16));
    tally.check(12, tokens * (4 * hidden + 2 * 10 * head + 2 * head + 2 * 3072));
}

}  // namespace

TEST_CASE("decoder ops: every stage of the SDPA layer that is no matrix product") { check_layer("block_small_sdpa"); }
TEST_CASE("decoder ops: every stage of the eager layer that is no matrix product") { check_layer("block_small_eager"); }

TEST_CASE("rope_table: Qwen3 rotary embedding at large positions") {
    const auto path = test::captures() / "h200/ops/ops2.safetensors";
    if (!exists(path)) return test::skip("no captures beside the repository");
    const SafetensorsFile file = SafetensorsFile::open(path);
    std::vector<std::int64_t> positions(8);
    std::memcpy(positions.data(), file.stored("rot_pos").bytes.data(), 64);
    const RopeTable table = rope_table(find_gpu("h200"), file.tensor("inv_cpu_1e+06_128"), positions, fp32);
    Tally tally;
    tally.compare("rot_cos", file.stored("rot_cos"), table.cos);
    tally.compare("rot_sin", file.stored("rot_sin"), table.sin);
    tally.check(2, 2 * 8 * 128);
}
