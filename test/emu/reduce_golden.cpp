#include "emu/reduce.hpp"

#include <catch2/catch.hpp>
#include <cstdio>

#include "emu/io/synthetic.hpp"
#include "test/emu/tally.hpp"
#include "test/support/support.hpp"

using namespace bitreplay;
using test::Tally;

namespace {

/// "rsum_13x129" with prefix "rsum_": rows and width; false for another name.
bool parse(const std::string& name, const std::string& prefix, std::int64_t& rows, std::int64_t& width) {
    return name.starts_with(prefix) && std::sscanf(name.c_str() + prefix.size(), "%ldx%ld", &rows, &width) == 2;
}

struct Group {
    const char* prefix;
    ReduceFunction function;
    bool bf16_input;
    Format result;
    std::int64_t offset;
};

}  // namespace

TEST_CASE("reduce: sums and means of the corner-case captures") {
    const auto path = test::captures() / "h200/ops/ops2.safetensors";
    if (!exists(path)) return test::skip("no captures beside the repository");
    const SafetensorsFile file = SafetensorsFile::open(path);
    const Group groups[] = {
        {"rsum_", ReduceFunction::sum, false, fp32, 0},
        {"rmean_", ReduceFunction::mean, false, fp32, 0},
        {"bsumf_", ReduceFunction::sum, true, fp32, 0},
        {"bmeanf_", ReduceFunction::mean, true, fp32, 0},
        {"bmean_", ReduceFunction::mean, true, bf16, 0},
        {"mis_", ReduceFunction::sum, false, fp32, 3},
        {"misb_", ReduceFunction::sum, true, fp32, 3},
    };
    Tally tally;
    for (const std::string& shape : file.names()) {
        std::int64_t rows = 0, width = 0;
        if (!parse(shape, "rsum_", rows, width)) continue;
        const Tensor x =
            test::square(synthetic({.seed = static_cast<std::uint64_t>(5000 + width), .shape = {rows, width}}));
        const Tensor narrow = test::as_bf16(x);
        for (const Group& group : groups) {
            const std::string name = group.prefix + shape.substr(5);
            if (!file.contains(name)) continue;
            const Tensor got =
                reduce({find_gpu("h200"), group.function, group.bf16_input ? narrow : x, group.result, group.offset});
            tally.compare(name, file.stored(name), got);
        }
    }
    tally.check(5 * 189 + 2 * 78, 434023);
}

TEST_CASE("reduce: sums and means of the model-width captures") {
    const auto path = test::captures() / "h200/ops/ops.safetensors";
    if (!exists(path)) return test::skip("no captures beside the repository");
    const SafetensorsFile file = SafetensorsFile::open(path);
    Tally tally;
    for (const std::string& name : file.names()) {
        std::int64_t rows = 0, width = 0;
        const bool square = parse(name, "mean_sq_", rows, width), sum = parse(name, "sum_", rows, width),
                   narrow = parse(name, "bfsum_", rows, width), lse = parse(name, "lse_", rows, width);
        if (!square && !sum && !narrow && !lse) continue;
        Tensor x = synthetic(
            {.seed = static_cast<std::uint64_t>(900 + width), .format = narrow ? bf16 : fp32, .shape = {rows, width}});
        if (lse) x = test::scaled(x, 0x40800000);
        const ReduceFunction function = square ? ReduceFunction::mean_sq
                                        : lse  ? ReduceFunction::logsumexp
                                               : ReduceFunction::sum;
        tally.compare(name, file.stored(name), reduce({find_gpu("h200"), function, x, narrow ? bf16 : fp32}));
    }
    tally.check(4 * 40, 4 * 10 * (1 + 7 + 64 + 300));
}
