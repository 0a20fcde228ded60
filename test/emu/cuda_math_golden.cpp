#include <catch2/catch.hpp>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <vector>

#include "arch/fp32.hpp"
#include "emu/cuda_math.hpp"
#include "emu/io/safetensors.hpp"
#include "emu/io/sha256.hpp"
#include "emu/io/synthetic.hpp"
#include "emu/parallel.hpp"
#include "emu/unary.hpp"
#include "test/emu/function_cases.hpp"

using namespace bitreplay;

namespace {

const Mufu& unit() { return mufu(find_gpu("h200")); }

std::uint32_t word(const StoredTensor& stored, std::size_t i) {
    std::uint32_t value = 0;
    std::memcpy(&value, stored.bytes.data() + 4 * i, 4);
    return value;
}

/// A different selection every day, or by BITREPLAY_SEED.
std::uint64_t selection() {
    const char* seed = std::getenv("BITREPLAY_SEED");
    if (seed != nullptr) return std::strtoull(seed, nullptr, 0);
    return static_cast<std::uint64_t>(std::chrono::system_clock::now().time_since_epoch() / std::chrono::hours(24));
}

}  // namespace

TEST_CASE("cuda math: every bf16 and fp16 number through 18 PyTorch functions") {
    const nlohmann::json entries = test::read_json(test::testdata() / "h200/functions/functions.json");
    int compared = 0;
    for (const nlohmann::json& entry : entries) {
        const std::string name = entry["name"];
        const Format format = name.starts_with("bf16_") ? bf16 : fp16;
        if (!name.starts_with("bf16_") && !name.starts_with("fp16_")) continue;
        const cuda::Unary* fn = cuda::find_unary(name.substr(5));
        INFO(name);
        REQUIRE(fn != nullptr);
        Tensor x(format, {65536});
        for (std::int64_t i = 0; i < 65536; ++i) x.set(i, static_cast<std::uint64_t>(i));
        const Tensor y = unary(unit(), *fn, x, format);
        CHECK(sha256_hex(y.bytes()) == entry["sha256"].get<std::string>());
        int blocks = 0;
        for (std::int64_t b = 0; b < 256; ++b) {
            std::uint64_t hash = 0;
            for (std::int64_t i = 256 * b; i < 256 * b + 256; ++i) hash += test::sweep_term(static_cast<std::uint64_t>(i), y.get(i));
            blocks += hash == test::hex(entry["hashes"][static_cast<std::size_t>(b)]) ? 1 : 0;
        }
        CHECK(blocks == 256);
        ++compared;
    }
    CHECK(compared == 36);
}

TEST_CASE("cuda math: the fast intrinsics, 2^23 inputs each") {
    const nlohmann::json entries = test::read_json(test::testdata() / "h200/functions/functions.json");
    int compared = 0;
    for (const nlohmann::json& entry : entries) {
        const std::string name = entry["name"];
        const test::Intrinsic* intrinsic = test::find_intrinsic(name);
        if (intrinsic == nullptr) continue;
        std::vector<std::uint32_t> out(entry["count"].get<std::size_t>());
        parallel_for(static_cast<std::int64_t>(out.size()), 65536, [&](std::int64_t begin, std::int64_t end) {
            for (auto i = static_cast<std::uint64_t>(begin); i < static_cast<std::uint64_t>(end); ++i)
                out[i] = intrinsic->function(unit(), static_cast<std::uint32_t>(i * 512),
                                             static_cast<std::uint32_t>(test::counter_random(3, i)));
        });
        INFO(name);
        CHECK(sha256_hex(std::as_bytes(std::span(out))) == entry["sha256_of_outputs_le_u32"].get<std::string>());
        ++compared;
    }
    CHECK(compared == 10);
}

TEST_CASE("cuda math: torch.pow, samples and a daily selection of blocks of 9 sweeps") {
    const nlohmann::json entries = test::read_json(test::testdata() / "h200/functions/functions.json");
    const SafetensorsFile file = SafetensorsFile::open(test::testdata() / "h200/functions/functions.safetensors");
    const std::uint64_t first = selection() % 16;
    std::cout << "blocks " << first << " mod 16 of torch.pow\n";
    int sweeps = 0, blocks = 0;
    for (const nlohmann::json& entry : entries) {
        const std::string name = entry["name"];
        if (!name.starts_with("pow_")) continue;
        INFO(name);
        const test::PowSweep sweep(name);
        const StoredTensor& samples = file.stored(name);
        REQUIRE(samples.bytes.size() == 4 * 4096);
        int different = 0;
        for (std::uint64_t k = 0; k < 4096; ++k) different += sweep(unit(), k * 4096) != word(samples, k) ? 1 : 0;
        CHECK(different == 0);
        for (std::uint64_t b = first; b < 256; b += 16) {
            const bool equal = sweep.hash(unit(), b << 16, 1 << 16) == test::hex(entry["hashes"][b]);
            CHECK(equal);
            ++blocks;
        }
        ++sweeps;
    }
    CHECK(sweeps == 9);
    CHECK(blocks == 9 * 16);
}

TEST_CASE("cuda math: float32 functions, a daily selection of 2^24 consecutive inputs") {
    const nlohmann::json functions = test::read_json(test::testdata() / "h200/math/full_range.json");
    // One slice anywhere, one where most functions are not constant: exponents -16 to 15, both signs.
    const auto any = static_cast<std::uint32_t>(selection() * 37 % 256);
    const auto turn = static_cast<std::uint32_t>(selection() * 5 % 32);
    const std::uint32_t busy = (turn < 16 ? 0x38U : 0xB8U) + turn % 16;
    std::cout << "slices " << any << " and " << busy << " of 256\n";
    int compared = 0;
    for (const auto& [name, hashes] : functions.items()) {
        const cuda::Unary* fn = cuda::find_unary(name);
        INFO(name);
        REQUIRE(fn != nullptr);
        for (const std::uint32_t slice : {any, busy}) {
            CHECK(test::slice_hash(unit(), *fn, slice) == test::hex(hashes[slice]));
            ++compared;
        }
    }
    CHECK(compared == 32);
}

TEST_CASE("cuda math: float32 captures and rotary tables beside the repository") {
    const auto folder = test::captures() / "h200/ops";
    if (!exists(folder)) return test::skip("no captures beside the repository");
    const SafetensorsFile file = SafetensorsFile::open(folder / "ops.safetensors");
    int tensors = 0;
    const Tensor normal = synthetic({.seed = 778, .exp2 = 3, .shape = {65536}});
    for (const std::string& name : file.names()) {
        const std::size_t split = name.find('_');
        const std::string kind = name.substr(0, split);
        const cuda::Unary* fn = cuda::find_unary(name.substr(split + 1));
        if (fn == nullptr) continue;
        Tensor x = normal;
        if (kind == "f32raw") x = file.tensor("f32_raw_in");
        if (kind == "f32pos") x = file.tensor("f32pos_in");
        if (kind == "bf16") {
            x = Tensor(bf16, {65536});
            for (std::int64_t i = 0; i < 65536; ++i) x.set(i, static_cast<std::uint64_t>(i));
        } else if (!kind.starts_with("f32")) {
            continue;
        }
        const Tensor y = unary(unit(), *fn, x, x.format());
        const Tensor want = file.tensor(name);
        REQUIRE(y.size() == 65536);
        REQUIRE(want.size() == 65536);
        INFO(name);
        CHECK(std::memcmp(y.bytes().data(), want.bytes().data(), y.bytes().size()) == 0);
        ++tensors;
    }
    CHECK(tensors == 40);

    // 1 / theta^(2i/d); the division by a Python number is a product with its reciprocal on the GPU.
    const SafetensorsFile more = SafetensorsFile::open(folder / "ops2.safetensors");
    int values = 0, different = 0;
    for (const std::string& name : more.names()) {
        const bool inverse = name.starts_with("inv_cuda_");
        if (!inverse && !name.starts_with("pow_cuda_")) continue;
        const std::string rest = name.substr(9);
        const std::uint32_t theta = test::fp32_bits(std::stof(rest));
        const std::uint32_t width = f32::from_int(std::stoi(rest.substr(rest.find('_') + 1)));
        const StoredTensor& stored = more.stored(name);
        for (std::size_t i = 0; i < stored.bytes.size() / 4; ++i, ++values) {
            const std::uint32_t exponent = f32::mul(f32::from_int(static_cast<std::int32_t>(2 * i)), cuda::reciprocal(unit(), width));
            const std::uint32_t power = cuda::powf(unit(), theta, exponent);
            different += (inverse ? cuda::reciprocal(unit(), power) : power) != word(stored, i) ? 1 : 0;
        }
    }
    CHECK(values == 2496);
    CHECK(different == 0);
    // Rotary embeddings at large positions: one product with the frequencies of the CPU, then sinf and cosf.
    const Tensor positions_cos = more.tensor("rot_cos"), positions_sin = more.tensor("rot_sin");
    const StoredTensor& positions = more.stored("rot_pos");
    REQUIRE(positions_cos.shape() == std::vector<std::int64_t>{8, 128});
    different = 0;
    for (std::int64_t row = 0; row < 8; ++row) {
        std::int64_t position = 0;
        std::memcpy(&position, positions.bytes.data() + 8 * row, 8);
        for (std::int64_t i = 0; i < 128; ++i) {
            const std::uint32_t frequency = word(more.stored("inv_cpu_1e+06_128"), static_cast<std::size_t>(i % 64));
            const std::uint32_t angle = f32::mul(frequency, f32::from_int(static_cast<std::int32_t>(position)));
            different += cuda::cosf(unit(), angle) != positions_cos.get(128 * row + i) ? 1 : 0;
            different += cuda::sinf(unit(), angle) != positions_sin.get(128 * row + i) ? 1 : 0;
        }
    }
    CHECK(different == 0);
}
