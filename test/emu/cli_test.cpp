#include <catch2/catch.hpp>
#include <fstream>
#include <nlohmann/json.hpp>

#include "test/support/support.hpp"

using namespace bitreplay;

namespace {

std::filesystem::path write(const std::filesystem::path& path, const std::string& text) {
    std::ofstream(path) << text;
    return path;
}

std::int64_t lines(const std::string& text) { return std::count(text.begin(), text.end(), '\n'); }

}  // namespace

TEST_CASE("cli: gemm writes what replay then reads, and the exit codes follow the comparison") {
    const auto folder = test::scratch("cli");
    const std::string tool = test::cli(), out = (folder / "y.safetensors").string();
    const std::string gemm = tool + " gemm --gpu h200 --kernel cublas.nvjet --param split_k=2 --synthetic 3 5 300";
    CHECK(test::run(gemm + " --out " + out).exit_code == 0);
    CHECK(test::run(gemm + " --expect " + out + " y").exit_code == 0);
    const auto other = test::run(gemm + " --x-seed 7 --first 1 --expect " + out + " y");
    CHECK(other.exit_code == 1);
    CHECK_THAT(other.output, Catch::Matchers::Contains("15 compared") && Catch::Matchers::Contains("[0, 0]: expected 0x"));

    const std::string manifest = R"({"bitreplay": 1, "gpu": "H200", "software": {"torch": "2.11"}, "tensors": {
        "x": {"synthetic": "splitmix64-ih4", "seed": 1, "exp2": 0, "dtype": "bf16", "shape": [3, 300]},
        "w": {"synthetic": "splitmix64-ih4", "seed": 2, "exp2": -5, "dtype": "bf16", "shape": [5, 300]},
        "y": {"file": "y.safetensors", "key": "y"}}, "ops": [
        {"id": "q", "op": "linear", "in": {"x": "x", "w": "w"}, "kernel": "cublas.nvjet", "params": {"split_k": 2}, "expect": {"tensor": "y"}}]})";
    const auto path = write(folder / "m.json", manifest);
    const auto report = test::run(tool + " replay " + path.string() + " --json -");
    CHECK(report.exit_code == 0);
    const auto json = nlohmann::json::parse(report.output);
    CHECK(json.at("result") == "equal");
    CHECK(json.at("checks").at(0).at("compared") == 15);
    CHECK(json.at("gpu") == "H200");
    const auto text = test::run(tool + " replay " + path.string() + " --json " + (folder / "r.json").string());
    CHECK_THAT(text.output, Catch::Matchers::Contains("q          15 compared           0 differing"));
    CHECK(std::filesystem::exists(folder / "r.json"));
}

TEST_CASE("cli: every mistake gets one line on stderr and exit code 2, missing models 3") {
    const auto folder = test::scratch("cli-errors");
    const std::string tool = test::cli();
    struct Mistake {
        std::string arguments;
        int exit_code;
        std::string says;
    };
    const std::string cut = write(folder / "cut.json", R"({"bitreplay": 1, "gpu")").string();
    const std::string binary = write(folder / "binary.json", std::string("\xff\xfe\0\1", 4)).string();
    const std::string x = R"("x": {"synthetic": "splitmix64-ih4", "seed": 1, "exp2": 0, "dtype": "bf16", "shape": [3, 64]})";
    const std::string product = write(folder / "product.json", R"({"bitreplay": 1, "gpu": "h200", "tensors": {)" + x + R"(, "w": {"synthetic": "splitmix64-ih4",
        "seed": 2, "exp2": 0, "dtype": "bf16", "shape": [5, 64]}}, "ops": [{"id": "it", "op": "linear", "in": {"x": "x", "w": "w"}, "kernel": "single_walk"}]})").string();
    const std::string recorded = write(folder / "recorded.json", R"({"bitreplay": 1, "gpu": "h200", "tensors": {)" + x + R"(, "w": {"synthetic": "splitmix64-ih4",
        "seed": 2, "exp2": 0, "dtype": "bf16", "shape": [5, 64]}}, "ops": [{"id": "it", "op": "linear", "in": {"x": "x", "w": "w"}, "expect": {"sha256": ")" +
        std::string(64, '0') + "\"}}]}").string();
    const std::string silu = write(folder / "silu.json", R"({"bitreplay": 1, "gpu": "h200", "tensors": {)" + x +
        R"(}, "ops": [{"id": "it", "op": "unary", "in": {"x": "x"}, "params": {"fn": "silu"}, "expect": {"sha256": ")" + std::string(64, '0') + "\"}}]}").string();
    const std::string lines_in_id = write(folder / "lines.json", R"({"bitreplay": 1, "gpu": "h200", "tensors": {)" + x + R"(, "w": {"synthetic": "splitmix64-ih4",
        "seed": 2, "exp2": 0, "dtype": "bf16", "shape": [5, 65]}}, "ops": [{"id": "it\nand on", "op": "linear", "in": {"x": "x", "w": "w"}, "expect": {"sha256": ")" +
        std::string(64, '0') + "\"}}]}").string();
    const std::string zeros = (folder / "zeros.json").string();
    std::filesystem::create_symlink("/dev/zero", zeros);
    const Mistake mistakes[] = {
        {"replay", 2, "manifest is required"},
        {"replay absent.json", 2, "absent.json: cannot be opened"},
        {"replay " + folder.string(), 2, "cannot be opened"},
        {"replay " + cut, 2, "not JSON"},
        {"replay " + binary, 2, "not JSON"},
        {"replay " + cut + " --inputs sideways", 2, "--inputs"},
        {"frobnicate", 2, "frobnicate"},
        {"gemm --gpu h200 --kernel nothing --synthetic 1 1 1", 3, "kernel \"nothing\" is unknown"},
        {"gemm --gpu h300 --kernel single_walk --synthetic 1 1 1", 3, "unknown GPU"},
        {"gemm --gpu v100 --kernel single_walk --synthetic 1 1 16", 3, "v100 has no bf16 x bf16 instruction"},
        {"gemm --gpu h200 --kernel single_walk", 2, "--synthetic"},
        {"gemm --gpu h200 --kernel-name nvjet_sm90_tst_64x8_64x16_4x1_v_bz_splitK_TNT --synthetic 1 1 64", 3, "split_k was not recorded"},
        {"gemm --gpu h200 --kernel single_walk --synthetic 1 1 16 --out /no-such-folder/y.safetensors", 2, "no-such-folder"},
        {"identify", 2, "manifest is required"},
        {"identify absent.json", 2, "absent.json: cannot be opened"},
        {"identify " + cut, 2, "not JSON"},
        {"identify " + product + " --op nothing", 2, "no op is called"},
        {"identify " + recorded + " --gpu h300", 3, "unknown GPU"},
        {"identify " + recorded, 2, "only a SHA-256 was recorded"},
        {"identify " + product + " --param split_k", 2, "expected name=value"},
        {"identify " + product, 2, "0 ops have an"},
        {"identify " + product + " --op it", 2, "nothing was recorded"},
        {"identify " + silu, 3, "no candidates for op unary"},
        {"explain", 2, "explain needs a manifest"},
        {"explain absent.json --element 0,0", 2, "absent.json: cannot be opened"},
        {"explain " + product, 2, "--element"},
        {"explain " + product + " --op it --element 0,7", 2, "outside"},
        {"explain " + product + " --op it --element 3,0", 2, "outside"},
        {"explain " + product + " --op it --element 0,0 --gpu v100", 3, "v100 has no bf16"},
        {"explain " + product + " --op it --element 0,0 --against-param split_k=2", 2, "split_k: unknown key"},
        {"explain " + silu + " --op it --element 0,0", 3, "no trace of op unary"},
        {"explain --diff " + product, 2, "--diff"},
        {"info nonsense", 2, "nonsense"},
        {"replay /dev/zero", 2, "/dev/zero: longer than 100 MB"},
        {"info --gpu " + zeros, 2, "zeros.json: longer than 100 MB"},
        {"replay " + lines_in_id, 2, "lines.json: op it\\x0aand on: K differs"},
        {"identify " + lines_in_id, 2, "lines.json: op it\\x0aand on: K differs"},
        {"gemm --gpu h200 --kernel single_walk --synthetic 16777216 1 16777216", 2, "gemm: out of memory"},
        // Twice, or in vain.
        {"replay " + cut + " --threads 1 --threads 2", 2, "--threads was given twice"},
        {"replay " + cut + " --quiet --quiet", 2, "--quiet was given twice"},
        {"replay " + cut + " --json=a --json b", 2, "--json was given twice"},
        {"explain " + product + " --op it --element 0,0 --element 1,1", 2, "--element was given twice"},
        {"gemm --gpu h200 --gpu a100 --kernel single_walk --synthetic 1 1 16", 2, "--gpu was given twice"},
        {"gemm --gpu h200 --kernel single_walk --synthetic 1 1 16 --first 3", 2, "--first: has no effect without --expect"},
        {"gemm --gpu h200 --kernel single_walk --synthetic 1 1 16 --x a b", 2, "--x: has no effect with --synthetic"},
        {"gemm --gpu h200 --kernel single_walk --x a b --w a b --x-seed 3", 2, "--x-seed: has no effect without --synthetic"},
        {"identify " + product + " --all --compare 5", 2, "--compare: has no effect with --all"},
        {"explain --diff a b --op it", 2, "--op: has no effect with --diff"},
        {"explain c --diff a b", 2, "manifest: has no effect with --diff"},
        {"explain " + product + " --element 0,0 --against-gpu a100 --terms", 2, "--terms: has no effect with --against"},
        {"info kernels --gpu h200", 2, "--gpu: has no effect on kernels"},
        {"bench gemm --gpu h200 --param split_k=2", 2, "--param: has no effect without --kernel"},
        {"info --gpu nothing", 3, "unknown GPU"},
    };
    for (const Mistake& mistake : mistakes) {
        const auto result = test::run(tool + " " + mistake.arguments);
        INFO(mistake.arguments << "\n" << result.output);
        CHECK(result.exit_code == mistake.exit_code);
        CHECK(lines(result.output) == 1);
        CHECK_THAT(result.output, Catch::Matchers::StartsWith("bitreplay: ") && Catch::Matchers::Contains(mistake.says));
    }
}

TEST_CASE("cli: a manifest may come through a pipe, and names from it stay on one line") {
    const auto folder = test::scratch("cli-pipe");
    const std::string text = R"({"bitreplay": 1, "gpu": "h200", "tensors": {"x": {"synthetic": "splitmix64-ih4", "seed": 1, "exp2": 0, "dtype": "bf16",
        "shape": [3, 64]}}, "ops": [{"id": "a\nb", "op": "unary", "in": {"x": "x"}, "params": {"fn": "silu"}, "expect": {"sha256": ")" + std::string(64, '0') +
        "\"}}, {\"id\": \"ç\\td\", \"op\": \"linear\", \"in\": {\"x\": \"x\", \"w\": \"x\"}, \"expect\": {\"sha256\": \"" + std::string(64, '0') + "\"}}]}";
    const std::string path = write(folder / "m.json", text).string();
    for (const std::string& command : {"cat " + path + " | " + test::cli() + " replay /dev/stdin", test::cli() + " replay /dev/stdin < " + path}) {
        const auto result = test::run(command);
        CHECK(result.exit_code == 1);
        CHECK(lines(result.output) == 5);  // the check, its two digests, what is not modelled, the verdict
        CHECK_THAT(result.output, Catch::Matchers::StartsWith("a\\x0ab ") && Catch::Matchers::Contains("ç\\x09d ") && Catch::Matchers::Contains("no kernel was recorded"));
    }
}

TEST_CASE("cli: a diff of which nothing could be computed does not say that nothing differs") {
    const auto folder = test::scratch("cli-diff");
    const std::string x = R"("x": {"synthetic": "splitmix64-ih4", "seed": 1, "exp2": 0, "dtype": "bf16", "shape": [3, 64]})";
    const std::string path = write(folder / "m.json", R"({"bitreplay": 1, "gpu": "h200", "tensors": {)" + x +
        R"(}, "ops": [{"id": "it", "op": "linear", "in": {"x": "x", "w": "x"}, "expect": {"sha256": ")" + std::string(64, '0') + "\"}}]}").string();
    const auto result = test::run(test::cli() + " explain --diff " + path + " " + path);
    CHECK(result.exit_code == 3);
    CHECK_THAT(result.output, Catch::Matchers::Contains("not modelled: ") && Catch::Matchers::Contains("nothing could be compared"));
    CHECK_THAT(result.output, !Catch::Matchers::Contains("nothing differs"));
}

TEST_CASE("cli: help, version and info answer on stdout with exit code 0") {
    const std::string tool = test::cli();
    for (const std::string arguments : {"--help", "--version", "replay --help", "gemm --help", "info --help", "identify --help", "explain --help", "info gpus", "info instructions --gpu h200",
                                        "info kernels", "info formats", "info --gpu h200"}) {
        const auto result = test::run(tool + " " + arguments + " 2>/dev/null");
        CHECK(result.exit_code == 0);
        CHECK_FALSE(result.output.empty());
    }
    const auto rules = nlohmann::json::parse(test::run(tool + " info instructions --json").output);
    CHECK(rules.size() > 300);
    CHECK(nlohmann::json::parse(test::run(tool + " info kernels --json").output).size() >= 9);
}
