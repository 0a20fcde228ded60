#include <catch2/catch.hpp>
#include <fstream>

#include "arch/gpu.hpp"
#include "formats/error.hpp"
#include "test/support/support.hpp"

using namespace bitreplay;

namespace {

constexpr std::string_view good = R"({
  "name": "x1", "title": "Example", "aliases": ["sm_99"], "sm": 99, "multiprocessors": 2, "threads_per_multiprocessor": 1024,
  "dot": [
    {"family": "mma", "shapes": ["m16n8k8"], "types": ["f32.bf16.bf16.f32"],
     "steps": [{"from": "c", "take": "all", "block": 8, "align_bits": 24, "round": "rz", "keep": 23}],
     "evidence": {"level": "unverified", "source": "an example"}},
    {"family": "mma", "shapes": ["m8n8k4"], "types": ["f64.f64.f64.f64"],
     "steps": [{"from": "c", "fma": "k"}], "evidence": {"level": "unverified", "source": "an example"}}
  ]
})";

/// The good file with one text replaced by another.
std::filesystem::path file_with(std::string_view from, std::string_view to) {
    std::string text(good);
    const auto at = text.find(from);
    REQUIRE(at != std::string::npos);
    text.replace(at, from.size(), to);
    static int number = 0;
    const std::filesystem::path path = test::scratch("gpu-" + std::to_string(++number)) / "x1.json";
    std::ofstream(path) << text;
    return path;
}

std::string error_of(std::string_view from, std::string_view to) {
    const std::filesystem::path path = file_with(from, to);
    try {
        load_gpu_file(path);
    } catch (const InputError& error) {
        const std::string message = error.what();
        CHECK(message.starts_with(path.string() + ": "));
        CHECK(message.find('\n') == std::string::npos);
        return message.substr(std::min(message.size(), path.string().size() + 2));
    }
    return "accepted";
}

}  // namespace

TEST_CASE("gpu file: a good one loads, by path and by name") {
    const std::filesystem::path path = file_with("x1", "x1");
    const Gpu gpu = load_gpu_file(path);
    CHECK(gpu.name == "x1");
    CHECK(gpu.sm == 99);
    CHECK(gpu.dot.size() == 2);
    CHECK(gpu.dot_rule(parse_instruction("mma.m16n8k8.f32.bf16.bf16.f32")).steps.front().align_bits == 24);
    CHECK(find_gpu(path.string()).name == "x1");
}

TEST_CASE("gpu file: every defect is an InputError that names the file and the place") {
    const struct {
        std::string_view from, to, pointer, reason;
    } rows[] = {
        {R"("align_bits")", R"("align_bit")", "/dot/0/steps/0", "missing key \"align_bits\""},
        {R"("keep": 23)", R"("keep": 23, "kep": 1)", "/dot/0/steps/0/kep", "unknown key (did you mean \"keep\"?)"},
        {R"("sm": 99, )", "", "/", "missing key \"sm\""},
        {R"("sm": 99)", R"("sm": 99, "smx": 1)", "/smx", "unknown key"},
        {R"("sm": 99)", R"("sm": "99")", "/sm", "must be an integer"},
        {R"("sm": 99)", R"("sm": 99.5)", "/sm", "must be an integer"},
        {R"("sm": 99)", R"("sm": 1000)", "/sm", "must be from 10 to 999"},
        {R"("block": 8)", R"("block": 65)", "/dot/0/steps/0/block", "must be from 1 to 64"},
        {R"("align_bits": 24)", R"("align_bits": 0)", "/dot/0/steps/0/align_bits", "must be from 1 to 40"},
        {R"("align_bits": 24)", R"("align_bits": 18446744073709551615)", "/dot/0/steps/0/align_bits", "must be from"},
        {R"("keep": 23)", R"("keep": 24)", "/dot/0/steps/0/keep", "must be from 1 to 23"},
        {R"("rz")", R"("rna")", "/dot/0/steps/0/round", "must be one of rne, rz"},
        {R"("all")", R"("k%4<3")", "/dot/0/steps/0/take", "must be one of"},
        {R"(["sm_99"])", R"("sm_99")", "/aliases", "must be a list"},
        {R"(["sm_99"])", R"([99])", "/aliases/0", "must be a string"},
        {R"("m16n8k8")", R"("m16n8")", "/dot/0/shapes/0", "not a shape"},
        {R"(["m16n8k8"])", "[]", "/dot/0", "is empty"},
        {R"("f32.bf16.bf16.f32")", R"("f32.bf17.bf16.f32")", "/dot/0/types/0", "not a list of types"},
        {R"("f32.bf16.bf16.f32")", R"("f32.bf16.bf16.f32", "f32.bf16.bf16.f32")", "/dot/0/types/1", "two rules"},
        {R"("m8n8k4"], "types": ["f64.f64.f64.f64"])",
         R"("m8n8k4"], "types": ["f32.f16.f16.f32"])",
         "/dot/1/types/0",
         "do not fit"},
        {R"("f32.bf16.bf16.f32")", R"("f16.f16.f16.f16")", "/dot/0/types/0", "do not fit"},
        {R"("f32.bf16.bf16.f32")", R"("f32.f64.f64.f32")", "/dot/0/types/0", "do not fit"},
        {R"("f32.bf16.bf16.f32")", R"("e4m3.e4m3.e4m3.e4m3")", "/dot/0/types/0", "do not fit"},
        {R"("f32.bf16.bf16.f32")", R"("f32.bf16.bf16.f64")", "/dot/0/types/0", "do not fit"},
        {R"("unverified")", R"("certain")", "/dot/0/evidence/level", "must be one of"},
        {R"("sm": 99)", R"("sm": 99, "sm": 98)", "", "duplicate key \"sm\""},
        {R"("dot": [)", R"("dot": [[)", "not JSON", ""},
    };
    for (const auto& row : rows) {
        const std::string message = error_of(row.from, row.to);
        INFO(row.from << " -> " << row.to << ": " << message);
        CHECK(message.starts_with(row.pointer));
        CHECK(message.find(row.reason) != std::string::npos);
    }
    CHECK_THROWS_AS(load_gpu_file("/nonexistent/x.json"), InputError);
    CHECK_THROWS_AS(load_gpu_file(test::scratch("gpu-folder")), InputError);
}

TEST_CASE("instruction: text and meaning are one to one") {
    int count = 0;
    for (const std::string& name : gpu_names())
        for (const DotRule& rule : find_gpu(name).dot)
            for (Shape shape : rule.shapes) {
                if (shape.n == 0) shape.n = 64;
                const std::string text = to_string(Instruction{rule.family, shape, rule.types});
                const Instruction back = parse_instruction(text);
                CHECK(to_string(back) == text);
                CHECK(&find_gpu(name).dot_rule(back) == &rule);
                ++count;
            }
    CHECK(count > 300);
    CHECK(parse_instruction("wgmma.m64n8k16.f32.bf16.bf16").types.c == fp32);
    CHECK(parse_instruction("mma.m16n8k16.f32.f16.f16.f16").types.c == fp16);
}

TEST_CASE("instruction: malformed text is an InputError that quotes it") {
    for (const std::string text : {"",
                                   "mma",
                                   "mma.m16n8k16.f32.bf16",
                                   "mma.m16n8k16.f32.bf16.bf16.f32.f32",
                                   "hmma.m16n8k16.f32.bf16.bf16.f32",
                                   "mma.m16n8.f32.bf16.bf16.f32",
                                   "mma.m16k16n8.f32.bf16.bf16.f32",
                                   "mma.m16n8k16x.f32.bf16.bf16.f32",
                                   "mma.m16n-8k16.f32.bf16.bf16.f32",
                                   "mma.m0n8k16.f32.bf16.bf16.f32",
                                   "mma.m16n8k99999999999.f32.bf16.bf16.f32",
                                   "mma.m16n8k16.fp32.bf16.bf16.fp32",
                                   "mma.m16n8k16.F32.bf16.bf16.F32",
                                   "mma.m16n8k16...."}) {
        try {
            parse_instruction(text);
            FAIL("accepted: " << text);
        } catch (const InputError& error) {
            CHECK(std::string(error.what()).starts_with("instruction \"" + text + "\": "));
        }
    }
}
