#include "arch/gpu.hpp"

#include <catch2/catch.hpp>

#include "formats/error.hpp"

using namespace bitreplay;

TEST_CASE("gpu: every built-in file loads and its names lead back to it") {
    const auto names = gpu_names();
    CHECK(names.size() >= 17);
    for (const std::string& name : names) {
        CHECK(find_gpu(name).name == name);
        CHECK_FALSE(find_gpu(name).dot.empty());
    }
    CHECK(find_gpu("H200").sm == 90);
    CHECK(find_gpu("sm_80").name == "a100");
    CHECK_THROWS_AS(find_gpu("h300"), NotModelled);
}
