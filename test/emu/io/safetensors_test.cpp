#include "emu/io/safetensors.hpp"

#include <sys/resource.h>
#include <sys/stat.h>

#include <catch2/catch.hpp>
#include <csignal>
#include <cstring>
#include <fstream>
#include <optional>

#include "emu/io/atomic_file.hpp"
#include "formats/error.hpp"
#include "test/support/support.hpp"

using namespace bitreplay;

namespace {

std::string image(const std::string& header, const std::string& data = "", std::optional<std::uint64_t> length = {}) {
    const std::uint64_t n = length.value_or(header.size());
    return std::string(reinterpret_cast<const char*>(&n), 8) + header + data;
}

SafetensorsFile parse(const std::string& bytes) {
    auto owner = std::make_shared<const std::string>(bytes);
    return SafetensorsFile::parse(std::as_bytes(std::span(*owner)), "f", owner);
}

/// The message of the InputError that parsing these bytes throws, "" if it succeeds.
std::string error_of(const std::string& bytes) {
    try {
        parse(bytes);
    } catch (const InputError& error) {
        return error.what();
    }
    return "";
}

std::string entry(const std::string& dtype, const std::string& shape, const std::string& offsets) {
    return R"({"dtype":")" + dtype + R"(","shape":)" + shape + R"(,"data_offsets":)" + offsets + "}";
}

std::string slurp(const std::filesystem::path& path) {
    std::ifstream in(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
}

std::size_t files_in(const std::filesystem::path& folder) {
    return static_cast<std::size_t>(std::distance(std::filesystem::directory_iterator(folder), {}));
}

}  // namespace

TEST_CASE("safetensors: what is written is read back, bit for bit") {
    const auto folder = test::scratch("safetensors-round-trip");
    test::Random random;
    std::map<std::string, Tensor> tensors;
    int wanted = 0;
    for (const NamedFormat& row : formats) {
        if (row.safetensors.empty() && row.format != tf32) continue;
        Tensor t(row.format, {3, 5, 7});
        for (std::byte& b : t.mutable_bytes()) b = static_cast<std::byte>(random.below(256));
        tensors.emplace(row.name, t);
        tensors.emplace(std::string(row.name) + ".empty", Tensor(row.format, {0, 4}));
        tensors.emplace(std::string(row.name) + ".scalar", Tensor(row.format, {}));
        ++wanted;
    }
    REQUIRE(wanted == 8);
    const std::map<std::string, std::string> metadata{{"what", "test \"quoted\" \xC3\xA9"}, {"", ""}};
    write_safetensors(folder / "a.safetensors", tensors, metadata);
    CHECK(files_in(folder) == 1);

    const SafetensorsFile file = SafetensorsFile::open(folder / "a.safetensors");
    CHECK(file.metadata() == metadata);
    CHECK(file.names().size() == tensors.size());
    for (const auto& [name, tensor] : tensors) {
        INFO(name);
        const Tensor read = file.tensor(name);
        CHECK(read.format() == (tensor.format() == tf32 ? fp32 : tensor.format()));
        CHECK(read.shape() == tensor.shape());
        REQUIRE(read.bytes().size() == tensor.bytes().size());
        CHECK(std::equal(read.bytes().begin(), read.bytes().end(), tensor.bytes().begin()));
        CHECK(reinterpret_cast<std::uintptr_t>(read.bytes().data()) %
                  static_cast<std::uintptr_t>(read.element_bytes()) ==
              0);
    }
}

TEST_CASE("safetensors: a tensor keeps its mapping alive") {
    const auto folder = test::scratch("safetensors-alive");
    Tensor t(bf16, {2});
    t.set(1, 0x3F80);
    write_safetensors(folder / "a", {{"t", t}});
    Tensor read;
    {
        const SafetensorsFile file = SafetensorsFile::open(folder / "a");
        read = file.tensor("t");
    }
    std::filesystem::remove(folder / "a");
    CHECK(read.get(1) == 0x3F80);
}

TEST_CASE("safetensors: integer tensors can be stored but are no numbers of a format") {
    const auto file =
        parse(image("{\"h\":" + entry("I64", "[2]", "[0,16]") + ",\"u\":" + entry("U8", "[1]", "[16,17]") +
                        ",\"x\":" + entry("F4_E9", "[3,3]", "[17,19]") + "}",
                    std::string(19, 'q')));
    CHECK(file.stored("h").dtype == "I64");
    CHECK(file.stored("h").bytes.size() == 16);
    CHECK(file.stored("x").shape == std::vector<std::int64_t>{3, 3});
    CHECK_THROWS_WITH(file.tensor("u"), "f: u: dtype U8 is not a supported floating-point format");
    CHECK_THROWS_WITH(file.tensor("x"), "f: x: dtype F4_E9 is not a supported floating-point format");
    CHECK_THROWS_WITH(file.tensor("nosuch\n"), "f: nosuch\\x0a: no such tensor");
}

TEST_CASE("safetensors: misaligned tensors are read") {
    const auto file =
        parse(image("{\"a\":" + entry("U8", "[1]", "[0,1]") + ",\"b\":" + entry("F32", "[2]", "[1,9]") + "} ",
                    std::string("\x77\x01\x02\x03\x04\x05\x06\x07\x08", 9)));
    CHECK(file.tensor("b").get(0) == 0x04030201);
    CHECK(file.tensor("b").get(1) == 0x08070605);
}

TEST_CASE("safetensors: every malformed file is refused with file, key and reason") {
    const std::string good = entry("F32", "[1]", "[0,4]");
    const struct {
        std::string bytes, message;
    } cases[] = {
        {"", "f: truncated: 0 bytes, no header"},
        {"1234567", "f: truncated: 7 bytes, no header"},
        {image("{}", "", 3), "f: header: truncated: the file ends before the header does"},
        {image("{}", "", 100'000'001), "f: header: longer than 100 MB (not a safetensors file?)"},
        {image("{}", "", ~std::uint64_t{0}), "f: header: longer than 100 MB (not a safetensors file?)"},
        {image(""), "f: header: must begin with {"},
        {image("[]"), "f: header: must begin with {"},
        {image(" {}"), "f: header: must begin with {"},
        {image("{\"a\":" + good + ",\"a\":" + good + "}", "1234"), "f: duplicate key \"a\""},
        {image("{\"a\":3}"), "f: /a: must be an object"},
        {image("{\"__metadata__\":[]}"), "f: /__metadata__: must be an object"},
        {image("{\"__metadata__\":{\"k\":1}}"), "f: /__metadata__/k: must be a string"},
        {image("{\"a\":{\"shape\":[1],\"data_offsets\":[0,4]}}", "1234"), "f: /a: missing key \"dtype\""},
        {image("{\"a\":{\"dtype\":\"F32\",\"data_offsets\":[0,4]}}", "1234"), "f: /a: missing key \"shape\""},
        {image("{\"a\":{\"dtype\":\"F32\",\"shape\":[1]}}", "1234"), "f: /a: missing key \"data_offsets\""},
        {image(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4],"shapes":[1]}})", "1234"),
         "f: /a/shapes: unknown key (did you mean \"shape\"?)"},
        {image(R"({"a":{"dtype":7,"shape":[1],"data_offsets":[0,4]}})", "1234"), "f: /a/dtype: must be a string"},
        {image("{\"a\":" + entry("F32", "4", "[0,4]") + "}", "1234"), "f: /a/shape: must be a list"},
        {image("{\"a\":" + entry("F32", "[-1]", "[0,4]") + "}", "1234"),
         "f: /a/shape/0: must be from 0 to 288230376151711744"},
        {image("{\"a\":" + entry("F32", "[1.0]", "[0,4]") + "}", "1234"), "f: /a/shape/0: must be an integer"},
        {image("{\"a\":" + entry("F32", "[18446744073709551616]", "[0,4]") + "}", "1234"),
         "f: /a/shape/0: must be an integer"},
        {image("{\"a\":" + entry("F32", "[4294967296,4294967296]", "[0,0]") + "}"), "f: /a/shape: too many elements"},
        {image("{\"a\":" + entry("X", "[4294967296,4294967296]", "[0,0]") + "}"), "f: /a/shape: too many elements"},
        {image("{\"a\":" + entry("F32", "[1]", "[0]") + "}", "1234"), "f: /a/data_offsets: must be [begin, end]"},
        {image("{\"a\":" + entry("F32", "[1]", "[0,4,4]") + "}", "1234"), "f: /a/data_offsets: must be [begin, end]"},
        {image("{\"a\":" + entry("F32", "[1]", "[0,8]") + "}", "1234"), "f: /a/data_offsets/1: must be from 0 to 4"},
        {image("{\"a\":" + entry("F32", "[1]", "[4,0]") + "}", "1234"), "f: /a/data_offsets/1: must be from 4 to 4"},
        {image("{\"a\":" + entry("F32", "[1]", "[-4,0]") + "}", "1234"), "f: /a/data_offsets/0: must be from 0 to 4"},
        {image("{\"a\":" + entry("F32", "[2]", "[0,4]") + "}", "1234"),
         "f: /a/data_offsets: 4 bytes do not match F32 [2]"},
        {image("{\"a\":" + good + ",\"b\":" + good + "}", "1234"), "f: /b/data_offsets: overlaps another tensor"},
        {image("{\"a\":" + good + ",\"b\":" + entry("F32", "[1]", "[5,9]") + "}", "123456789"),
         "f: /b/data_offsets: leaves a gap of 1 bytes before it"},
        {image("{\"a\":" + entry("F32", "[1]", "[1,5]") + "}", "12345"),
         "f: /a/data_offsets: leaves a gap of 1 bytes before it"},
        {image("{\"a\":" + good + "}", "12345"), "f: 1 bytes after the last tensor belong to none"},
        {image("{}", "1"), "f: 1 bytes after the last tensor belong to none"},
    };
    for (const auto& test : cases) {
        CAPTURE(test.bytes);
        CHECK(error_of(test.bytes) == test.message);
    }
    const std::string bad_json[] = {
        "{", "{}x", "{\"a\":}", "{'a':1}", "{\"\xFF\":1}", "{\"a\\ud800\":1}", std::string("{\0}", 3)};
    for (const std::string& header : bad_json) CHECK(error_of(image(header)).starts_with("f: not JSON: "));
    CHECK(error_of(image("{\"a\":" + std::string(100, '[') + std::string(100, ']') + "}")) ==
          "f: nested deeper than 64 levels");
    CHECK(error_of(image("{}")).empty());
    CHECK(error_of(image("{}    ")).empty());
    CHECK(error_of(image("{\"a\":" + good + "}", "1234")).empty());
}

TEST_CASE("safetensors: every shortened file is refused") {
    const std::string whole = image(
        "{\"a\":" + entry("F32", "[1]", "[0,4]") + ",\"b\":" + entry("BF16", "[3]", "[4,10]") + "}", "0123456789");
    REQUIRE(error_of(whole).empty());
    for (std::size_t n = 0; n < whole.size(); ++n) CHECK(!error_of(whole.substr(0, n)).empty());
}

TEST_CASE("safetensors: what is not a regular file is refused") {
    const auto folder = test::scratch("safetensors-kinds");
    CHECK_THROWS_WITH(SafetensorsFile::open(folder / "none"),
                      Catch::EndsWith("none: cannot open: No such file or directory"));
    CHECK_THROWS_WITH(SafetensorsFile::open(folder), Catch::EndsWith(": is a directory"));
    REQUIRE(::mkfifo((folder / "pipe").c_str(), 0600) == 0);
    CHECK_THROWS_WITH(SafetensorsFile::open(folder / "pipe"), Catch::EndsWith(": is not a regular file"));
    std::ofstream(folder / "empty").flush();
    CHECK_THROWS_WITH(SafetensorsFile::open(folder / "empty"), Catch::EndsWith("empty: truncated: 0 bytes, no header"));
}

TEST_CASE("safetensors: a header with 100000 tensors") {
    std::string header = "{";
    for (int i = 0; i < 100'000; ++i)
        header += (i == 0 ? "\"t" : ",\"t") + std::to_string(i) +
                  "\":" + entry("U8", "[1]", "[" + std::to_string(i) + "," + std::to_string(i + 1) + "]");
    const auto file = parse(image(header + "}", std::string(100'000, 'x')));
    CHECK(file.names().size() == 100'000);
}

TEST_CASE("safetensors: what cannot be stored is refused and writes nothing") {
    const auto folder = test::scratch("safetensors-refused");
    CHECK_THROWS_WITH(write_safetensors(folder / "a", {{"t", Tensor(e2m1, {1})}}),
                      Catch::EndsWith("a: t: e2m1 has no safetensors dtype"));
    CHECK_THROWS_WITH(write_safetensors(folder / "a", {{"__metadata__", Tensor(fp32, {1})}}),
                      Catch::EndsWith("is reserved"));
    CHECK_THROWS_WITH(write_safetensors(folder / "a", {{"\xFF", Tensor(fp32, {1})}}), Catch::EndsWith("not UTF-8"));
    CHECK_THROWS_WITH(write_safetensors(folder / "no" / "a", {}),
                      Catch::EndsWith("cannot write: No such file or directory"));
    CHECK_THROWS_WITH(write_safetensors(folder, {}), Catch::EndsWith("cannot write: Is a directory"));
    CHECK_THROWS_WITH(write_safetensors("/dev/full", {{"t", Tensor(fp32, {1})}}),
                      "/dev/full: cannot write: No space left on device");
    CHECK(files_in(folder) == 0);
}

TEST_CASE("safetensors: a write that fails half way leaves the old file and no other") {
    const auto folder = test::scratch("safetensors-half");
    write_file(folder / "a", "old");
    // A limit on the file size fails in the middle of the data, as a full disk does.
    rlimit before{};
    REQUIRE(::getrlimit(RLIMIT_FSIZE, &before) == 0);
    rlimit limited = before;
    limited.rlim_cur = 100'000;
    const auto handler = std::signal(SIGXFSZ, SIG_IGN);
    REQUIRE(::setrlimit(RLIMIT_FSIZE, &limited) == 0);
    std::string message;
    try {
        write_safetensors(folder / "a", {{"t", Tensor(fp32, {100'000})}});
    } catch (const InputError& error) {
        message = error.what();
    }
    REQUIRE(::setrlimit(RLIMIT_FSIZE, &before) == 0);
    std::signal(SIGXFSZ, handler);
    CHECK(message == (folder / "a").string() + ": cannot write: File too large");
    CHECK(slurp(folder / "a") == "old");
    CHECK(files_in(folder) == 1);
}

TEST_CASE("atomic file: replaces through a link, keeps the mode, and does nothing without commit") {
    const auto folder = test::scratch("atomic");
    write_file(folder / "real", "one");
    REQUIRE(::chmod((folder / "real").c_str(), 0640) == 0);
    std::filesystem::create_symlink("real", folder / "link");
    write_file(folder / "link", "two");
    CHECK(std::filesystem::is_symlink(folder / "link"));
    CHECK(slurp(folder / "real") == "two");
    CHECK(std::filesystem::status(folder / "real").permissions() == static_cast<std::filesystem::perms>(0640));
    {
        AtomicFile file(folder / "real");
        file.write("three");
        CHECK(files_in(folder) == 3);
    }
    CHECK(slurp(folder / "real") == "two");
    CHECK(files_in(folder) == 2);
    write_file("/dev/null", "kept a device");
    CHECK(std::filesystem::is_character_file("/dev/null"));
}
