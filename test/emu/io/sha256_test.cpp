#include "emu/io/sha256.hpp"

#include <catch2/catch.hpp>
#include <string>

using namespace bitreplay;

namespace {
std::string hash(const std::string& text) { return sha256_hex(std::as_bytes(std::span(text))); }
}  // namespace

TEST_CASE("sha256: FIPS 180-4 examples") {
    CHECK(hash("") == "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
    CHECK(hash("abc") == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    CHECK(hash(std::string(1'000'000, 'a')) == "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

TEST_CASE("sha256: pieces give the hash of the whole") {
    const std::string text = "The quick brown fox jumps over the lazy dog";
    for (std::size_t cut = 0; cut <= text.size(); ++cut) {
        Sha256 sum;
        sum.update(std::as_bytes(std::span(text).subspan(0, cut)));
        sum.update(std::as_bytes(std::span(text).subspan(cut)));
        CHECK(sum.hex() == hash(text));
    }
}
