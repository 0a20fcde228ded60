#include "emu/norm.hpp"

#include <catch2/catch.hpp>
#include <cstdlib>

#include "emu/fp32_rows.hpp"
#include "emu/io/synthetic.hpp"
#include "test/emu/tally.hpp"
#include "test/support/support.hpp"

using namespace bitreplay;
using test::Tally;

namespace {

constexpr std::uint32_t one = 0x3F800000, quarter = 0x3E800000;

Tensor widened_row(const Tensor& x) {
    Tensor out(fp32, {x.cols()});
    std::vector<std::uint32_t> values(static_cast<std::size_t>(x.cols()));
    load_fp32(x, 0, values);
    store_fp32(out, 0, values);
    return out;
}

}  // namespace

TEST_CASE("norm: layer_norm and fused rms_norm of the corner-case captures") {
    const auto path = test::captures() / "h200/ops/ops2.safetensors";
    if (!exists(path)) return test::skip("no captures beside the repository");
    const SafetensorsFile file = SafetensorsFile::open(path);
    Tally hashes, moments, values;
    const std::string first = "ln_sha_";
    for (const std::string& entry : file.names()) {
        if (!entry.starts_with(first)) continue;
        const std::string tail = entry.substr(first.size());  // bf16_1000
        const Format format = tail.starts_with("bf16") ? bf16 : fp32;
        const std::int64_t n = std::atoll(tail.c_str() + tail.find('_') + 1);
        const auto seed = [&](int base) { return static_cast<std::uint64_t>(base + n); };
        const Tensor x = synthetic({.seed = seed(3000), .plus = quarter, .format = format, .shape = {8, n}});
        const Tensor gamma = synthetic({.seed = seed(3500), .exp2 = -3, .plus = one, .format = format, .shape = {n}});
        const Tensor beta = synthetic({.seed = seed(3600), .exp2 = -2, .format = format, .shape = {n}});
        const auto run = [&](const Tensor* w, const Tensor* b, double eps, bool rms) {
            return layer_norm(
                {.gpu = find_gpu("h200"), .x = x, .weight = w, .bias = b, .eps = eps, .result = format, .rms = rms});
        };
        const auto hash = [&](const std::string& name, const LayerNormResult& got) {
            hashes.compare_hash(name + tail, file.stored(name + tail).bytes, got.y.bytes());
        };
        const LayerNormResult full = run(&gamma, &beta, 1e-5, false);
        hash("ln_sha_", full);
        moments.compare("ln_mean_" + tail, file.stored("ln_mean_" + tail), full.mean);
        moments.compare("ln_rstd_" + tail, file.stored("ln_rstd_" + tail), full.rstd);
        values.compare("ln_r0_" + tail, file.stored("ln_r0_" + tail), widened_row(full.y));
        hash("ln_g_sha_", run(&gamma, nullptr, 1e-5, false));
        hash("ln_plain_sha_", run(nullptr, nullptr, 1e-5, false));
        const LayerNormResult rms = run(&gamma, nullptr, 1e-6, true);
        hash("rms_sha_", rms);
        moments.compare("rms_rstd_" + tail, file.stored("rms_rstd_" + tail), rms.rstd);
        values.compare("rms_r0_" + tail, file.stored("rms_r0_" + tail), widened_row(rms.y));
        hash("rms_plain_sha_", run(nullptr, nullptr, 1e-6, true));
        hash("rms_F_sha_", rms);
    }
    hashes.check(6 * 34, 6 * 34);
    moments.check(3 * 34, 3 * 34 * 8);
    values.check(2 * 34, 205808);
}

TEST_CASE("norm: the model-width captures") {
    const auto path = test::captures() / "h200/ops/ops.safetensors";
    if (!exists(path)) return test::skip("no captures beside the repository");
    const SafetensorsFile file = SafetensorsFile::open(path);
    Tally values;
    for (const std::string& entry : file.names()) {
        const bool rms = entry.starts_with("rmsnorm_r0_");
        if (!rms && !entry.starts_with("layernorm_r0_")) continue;
        const std::string shape = entry.substr(entry.rfind('_') + 1);
        const std::int64_t rows = std::atoll(shape.c_str()), width = std::atoll(shape.c_str() + shape.find('x') + 1);
        const Tensor x =
            synthetic({.seed = static_cast<std::uint64_t>(900 + width), .format = bf16, .shape = {rows, width}});
        const Tensor ones = synthetic({.seed = 1, .exp2 = -100, .plus = one, .format = bf16, .shape = {width}});
        const LayerNormTask task{
            .gpu = find_gpu("h200"), .x = x, .weight = nullptr, .eps = rms ? 1e-6 : 1e-5, .result = bf16, .rms = rms};
        values.compare(entry, file.stored(entry), layer_norm(task).y);
    }
    values.check(80, 2 * 4 * (64 + 96 + 128 + 257 + 1000 + 1024 + 2560 + 4096 + 5120 + 11008));
}
