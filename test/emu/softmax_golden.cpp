#include "emu/softmax.hpp"

#include <catch2/catch.hpp>
#include <cstdlib>

#include "emu/fp32_rows.hpp"
#include "emu/io/synthetic.hpp"
#include "test/emu/tally.hpp"
#include "test/support/support.hpp"

using namespace bitreplay;
using test::Tally;

namespace {
constexpr std::uint32_t four = 0x40800000;

Tensor widened(const Tensor& x) {
    Tensor out(fp32, x.shape());
    std::vector<std::uint32_t> values(static_cast<std::size_t>(x.size()));
    load_fp32(x, 0, values);
    store_fp32(out, 0, values);
    return out;
}

/// Rows 0 and 1, columns 0 to 511.
Tensor corner(const Tensor& x) {
    const std::int64_t cols = std::min<std::int64_t>(x.cols(), 512);
    Tensor out(x.format(), {2, cols});
    for (std::int64_t i = 0; i < out.size(); ++i) out.set(i, x.get(i / cols * x.cols() + i % cols));
    return out;
}

std::span<const std::byte> row(const Tensor& x, std::int64_t i) {
    const auto bytes = static_cast<std::size_t>(x.cols() * x.element_bytes());
    return x.bytes().subspan(static_cast<std::size_t>(i) * bytes, bytes);
}
}  // namespace

TEST_CASE("softmax: the corner-case captures, softmax and log_softmax, fp32 and bf16") {
    const auto path = test::captures() / "h200/ops/ops2.safetensors";
    if (!exists(path)) return test::skip("no captures beside the repository");
    const SafetensorsFile file = SafetensorsFile::open(path);
    Tally values, hashes, row_hashes;
    const std::string first = "sm_f32_sha_";
    for (const std::string& entry : file.names()) {
        if (!entry.starts_with(first)) continue;
        const std::string width = entry.substr(first.size());
        const std::int64_t n = std::atoll(width.c_str());
        const Tensor x = test::scaled(synthetic({.seed = static_cast<std::uint64_t>(4000 + n), .shape = {3, n}}), four);
        const Tensor narrow = test::as_bf16(x);
        for (const bool log : {false, true}) {
            for (const Tensor* input : {&x, &narrow}) {
                const Tensor got = softmax({find_gpu("h200"), *input, input->format(), log});
                const std::string name = std::string("sm_") + (log ? "log_" : "") + (input == &x ? "f32_" : "bf16_");
                hashes.compare_hash(name + "sha_" + width, file.stored(name + "sha_" + width).bytes, got.bytes());
                for (std::int64_t i = 0; i < 3; ++i)
                    row_hashes.compare_hash(
                        name + "shas_" + width,
                        file.stored(name + "shas_" + width).bytes.subspan(static_cast<std::size_t>(32 * i), 32),
                        row(got, i));
                values.compare(name + "r_" + width, file.stored(name + "r_" + width), widened(corner(got)));
            }
        }
        const std::string name = "sm_conv_sha_" + width;
        hashes.compare_hash(name, file.stored(name).bytes, softmax({find_gpu("h200"), narrow, fp32}).bytes());
    }
    hashes.check(5 * 32, 5 * 32);
    row_hashes.check(3 * 4 * 32, 3 * 4 * 32);
    values.check(4 * 32, 107464);
}

TEST_CASE("softmax: the model-width captures") {
    const auto path = test::captures() / "h200/ops/ops.safetensors";
    if (!exists(path)) return test::skip("no captures beside the repository");
    const SafetensorsFile file = SafetensorsFile::open(path);
    Tally hashes, values;
    const std::string first = "softmax_sha_";
    for (const std::string& entry : file.names()) {
        if (!entry.starts_with(first)) continue;
        const std::string shape = entry.substr(first.size());
        const std::int64_t rows = std::atoll(shape.c_str()), width = std::atoll(shape.c_str() + shape.find('x') + 1);
        const Tensor x =
            test::scaled(synthetic({.seed = static_cast<std::uint64_t>(900 + width), .shape = {rows, width}}), four);
        const Tensor got = softmax({find_gpu("h200"), x, fp32});
        hashes.compare_hash(entry, file.stored(entry).bytes, got.bytes());
        values.compare("softmax_r0_" + shape, file.stored("softmax_r0_" + shape), got);
    }
    hashes.check(40, 40);
    values.check(40, 4 * (64 + 96 + 128 + 257 + 1000 + 1024 + 2560 + 4096 + 5120 + 11008));
}
