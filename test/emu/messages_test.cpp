// What a person is told about bad input: one line that names the file, the op or tensor, and the reason.

#include <catch2/catch.hpp>
#include <fstream>

#include "emu/io/safetensors.hpp"
#include "emu/replay.hpp"
#include "emu/replay_checks_private.hpp"
#include "formats/error.hpp"
#include "test/support/support.hpp"

using namespace bitreplay;
using Catch::Matchers::Equals;

namespace {

std::string synthetic(const std::string& name, const std::string& shape) {
    return "\"" + name + R"(": {"synthetic": "splitmix64-ih4", "seed": 1, "exp2": 0, "dtype": "bf16", "shape": )" + shape + "}";
}

std::string manifest(const std::string& tensors, const std::string& ops) {
    return R"({"bitreplay": 1, "gpu": "h200", "tensors": {)" + tensors + R"(}, "ops": [)" + ops + "]}";
}

const std::string digest = R"("expect": {"sha256": ")" + std::string(64, '0') + "\"}";

std::string op(const std::string& kind, const std::string& in, const std::string& rest) {
    return R"({"id": "it", "op": ")" + kind + R"(", "kernel": "single_walk", "in": {)" + in + "}, " + rest + "}";
}

/// What replay() says, without the name of the folder.
std::string refusal(const std::string& text) {
    const auto folder = test::scratch("messages");
    write_safetensors(folder / "y.safetensors", {{"y", Tensor(bf16, {4, 6})}});
    try {
        replay(parse_manifest(text, folder / "m.json"), {});
    } catch (const InputError& error) {
        const std::string what = error.what(), prefix = folder.string() + "/";
        return what.starts_with(prefix) ? what.substr(prefix.size()) : what;
    }
    return "accepted";
}

}  // namespace

TEST_CASE("messages: shapes that contradict each other are found before anything is generated") {
    // More bytes than an address space has: generating one of them would be a message about memory.
    const std::string huge = synthetic("huge", "[1099511627776, 65536]"), wide = synthetic("wide", "[65536, 1099511627776]"),
                      small = synthetic("small", "[6, 40]"), y = R"("y": {"file": "y.safetensors", "key": "y"})",
                      bias = synthetic("bias", "[7]"), c = synthetic("c", "[3, 7]");
    const auto refused = [&](const std::string& kind, const std::string& in, const std::string& rest = digest) {
        return refusal(manifest(huge + "," + wide + "," + small + "," + y + "," + bias + "," + c, op(kind, in, rest)));
    };
    const std::string h = "bf16 [1099511627776, 65536]", w = "bf16 [65536, 1099511627776]";
    CHECK_THAT(refused("linear", R"("x": "huge", "w": "small")"), Equals("m.json: op it: K differs: x is " + h + ", w is bf16 [6, 40]"));
    CHECK_THAT(refused("scaled_linear", R"("x": "huge", "w": "small", "x_scale": "c", "w_scale": "c")"),
               Equals("m.json: op it: K differs: x is " + h + ", w is bf16 [6, 40]"));
    CHECK_THAT(refused("matmul", R"("a": "huge", "b": "small")"), Equals("m.json: op it: K differs: a is " + h + ", b is bf16 [6, 40]"));
    CHECK_THAT(refused("linear", R"("x": "small", "w": "wide")"), Equals("m.json: op it: K differs: x is bf16 [6, 40], w is " + w));
    CHECK_THAT(refused("linear", R"("x": "huge", "w": "huge", "bias": "bias")"),
               Equals("m.json: op it: input bias must have 1099511627776 elements, not bf16 [7]"));
    CHECK_THAT(refused("addmm", R"("a": "wide", "b": "huge", "c": "c")"),
               Equals("m.json: op it: input c: bf16 [3, 7] does not broadcast to [1, 65536, 65536]"));
    CHECK_THAT(refused("bmm", R"("a": "huge", "b": "wide")"), Equals("m.json: op it: a and b must have three dimensions"));
    CHECK_THAT(refused("mm", R"("a": "wide", "b": "huge")", R"("expect": {"tensor": "y"})"),
               Equals("m.json: op it: expect: computed bf16 [65536, 65536], recorded bf16 [4, 6]"));
    CHECK_THAT(refused("mm", R"("a": "wide", "b": "huge")", R"("expect": {"tensor": "y", "rows": [1, 2, 3, 4]})"),
               Equals("m.json: op it: expect: computed bf16 [4, 65536], recorded bf16 [4, 6]"));
    CHECK_THAT(refused("linear", R"("x": "huge", "w": "huge")", R"("expect": {"tensor": "y", "cols": [1099511627776]})"),
               Equals("m.json: op it: expect: column 1099511627776 is outside bf16 [1099511627776, 1099511627776]"));
    // What an earlier product gives counts as well.
    CHECK_THAT(refusal(manifest(huge + "," + wide + "," + small,
                                op("mm", R"("a": "wide", "b": "huge")", R"("out": "p", )" + digest) +
                                    R"(,{"id": "next", "op": "linear", "kernel": "single_walk", "in": {"x": "p", "w": "small"}, )" + digest + "}")),
               Equals("m.json: op next: K differs: x is bf16 [65536, 65536], w is bf16 [6, 40]"));
}

TEST_CASE("messages: a part that does not exist names manifest, op and key") {
    const std::string x = synthetic("x", "[4, 40]"), w = synthetic("w", "[6, 40]"), y = R"("y": {"file": "y.safetensors", "key": "y"})";
    const auto refused = [&](const std::string& expect) {
        return refusal(manifest(x + "," + w + "," + y, op("linear", R"("x": "x", "w": "w")", R"("expect": )" + expect)));
    };
    CHECK_THAT(refused(R"({"tensor": "y", "rows": [4]})"), Equals("m.json: op it: expect: row 4 is outside bf16 [4, 6]"));
    CHECK_THAT(refused(R"({"tensor": "y", "cols": [1, 6]})"), Equals("m.json: op it: expect: column 6 is outside bf16 [4, 6]"));
    CHECK_THAT(refusal(manifest(x + "," + w, R"({"id": "it", "op": "linear", "kernel": "cublas.nvjet", "in": {"x": "x", "w": "w"},
                                                 "kernel_names": ["nvjet_sm90_tst_64x8_64x16_4x1_v_bx_TNT"], "params": {"tile_k": 32}, )" + digest + "}")),
               Equals("m.json: op it: kernel cublas.nvjet: tile_k = 32 contradicts the kernel name nvjet_sm90_tst_64x8_64x16_4x1_v_bx_TNT"));
}

TEST_CASE("messages: sizes beyond the memory name the file and the tensor or op") {
    CHECK_THAT(refusal(manifest(synthetic("x", "[1048576, 1099511627776]"), op("unary", R"("x": "x")", R"("params": {"fn": "silu"}, )" + digest))),
               Equals("m.json: /tensors/x: shape [1048576, 1099511627776] is too large"));
    CHECK_THAT(refusal(manifest(synthetic("x", "[65536, 1099511627776]"), op("unary", R"("x": "x")", R"("params": {"fn": "silu"}, )" + digest))),
               Equals("m.json: /tensors/x: out of memory"));
    // An allocation of an op itself.
    const Manifest text = parse_manifest(manifest(synthetic("x", "[1]"), op("unary", R"("x": "x")", digest)), "m.json");
    const auto run = [&](const auto& function) { detail::about(text, text.ops.front(), function); };
    CHECK_THROWS_WITH(run([] { throw std::bad_alloc(); }), "m.json: op it: out of memory");
    CHECK_THROWS_WITH(run([] { std::vector<int>().reserve(std::size_t{1} << 62); }), "m.json: op it: out of memory");
}
