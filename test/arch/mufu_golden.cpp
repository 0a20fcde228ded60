#include <catch2/catch.hpp>
#include <cstring>
#include <vector>

#include "arch/mufu.hpp"
#include "emu/io/safetensors.hpp"
#include "emu/io/sha256.hpp"
#include "emu/parallel.hpp"
#include "test/support/sweep_hash.hpp"

using namespace bitreplay;

TEST_CASE("mufu: all outputs of 28 captured sweeps") {
    const Mufu& unit = mufu_table(find_gpu("h200").mufu->table);
    const nlohmann::json sweeps = test::read_json(test::testdata() / "h200/mufu/mufu.json");
    const SafetensorsFile samples = SafetensorsFile::open(test::testdata() / "h200/mufu/mufu_samples.safetensors");
    int compared = 0;
    std::int64_t outputs = 0;
    for (const nlohmann::json& sweep : sweeps) {
        const MufuForm& form = find_mufu_form(sweep["ptx"].get<std::string>());
        const auto first = static_cast<std::uint32_t>(test::hex(sweep["first_input_bits"]));
        const auto step = sweep["step"].get<std::uint32_t>();
        std::vector<std::uint32_t> out(sweep["count"].get<std::size_t>());
        parallel_for(static_cast<std::int64_t>(out.size()), 65536, [&](std::int64_t begin, std::int64_t end) {
            for (auto i = static_cast<std::size_t>(begin); i < static_cast<std::size_t>(end); ++i)
                out[i] = (unit.*form.function)(first + static_cast<std::uint32_t>(i) * step);
        });
        const std::string name = sweep["name"];
        INFO(name);
        const StoredTensor& stored = samples.stored(name);
        const std::size_t count = stored.bytes.size() / 4, stride = out.size() / count;
        int different = 0;
        for (std::size_t k = 0; k < count; ++k) {
            std::uint32_t want = 0;
            std::memcpy(&want, stored.bytes.data() + 4 * k, 4);
            different += out[k * stride] != want ? 1 : 0;
        }
        CHECK(count == 4096);
        CHECK(different == 0);
        CHECK(sha256_hex(std::as_bytes(std::span(out))) == sweep["sha256_of_outputs_le_u32"].get<std::string>());
        ++compared;
        outputs += static_cast<std::int64_t>(out.size());
    }
    CHECK(compared == 28);
    CHECK(outputs == std::int64_t{28} << 23);
}

TEST_CASE("mufu: every input of the 16-bit forms") {
    const Mufu& unit = mufu_table(find_gpu("h200").mufu->table);
    const SafetensorsFile file = SafetensorsFile::open(test::testdata() / "h200/functions/functions.safetensors");
    const nlohmann::json entries = test::read_json(test::testdata() / "h200/functions/functions.json");
    int forms = 0, packed = 0;
    for (const MufuForm& form : mufu_forms()) {
        if (form.format == fp32) continue;
        INFO(form.ptx);
        if (form.ptx.ends_with("x2")) {
            // Both halves were the outputs of the scalar form; the hashes are over (low i, high 65535 - i).
            for (const nlohmann::json& entry : entries) {
                if (entry["name"] != std::string(form.ptx)) continue;
                CHECK(entry["equals_scalar"] == true);
                ++packed;
            }
            continue;
        }
        const StoredTensor& stored = file.stored(form.ptx);
        REQUIRE(stored.bytes.size() == 131072);
        int different = 0;
        for (std::uint32_t x = 0; x < 65536; ++x) {
            std::uint16_t want = 0;
            std::memcpy(&want, stored.bytes.data() + 2 * x, 2);
            different += (unit.*form.function)(x) != want ? 1 : 0;
        }
        CHECK(different == 0);
        ++forms;
    }
    CHECK(forms == 4);
    CHECK(packed == 4);
}
