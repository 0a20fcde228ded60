#pragma once
// Private: the one strict reader behind every JSON file of the project (GPUs, recipes, manifests, safetensors headers).
// Knows std and nlohmann only; included by .cpp files alone (test/layering.cmake lists them).

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <initializer_list>
#include <limits>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <string_view>
#include <unordered_set>
#include <utility>
#include <vector>

#include "formats/error.hpp"

namespace bitreplay::detail {

/// Any text as one printable ASCII line: control and non-ASCII bytes become \xNN, long texts are cut.
inline std::string printable(std::string_view text, std::size_t limit = 200) {
    constexpr std::string_view digits = "0123456789abcdef";
    std::string out;
    for (const char ch : text.substr(0, limit)) {
        const auto byte = static_cast<unsigned char>(ch);
        if (byte >= 0x20 && byte < 0x7F) {
            out += ch;
        } else {
            out += "\\x";
            out += digits[byte >> 4];
            out += digits[byte & 15];
        }
    }
    if (text.size() > limit) out += "...";
    return out;
}

[[noreturn]] inline void input_error(std::string_view file, std::string_view where, std::string_view reason) {
    std::string message = printable(file, 4096);
    if (!where.empty()) message += ": " + printable(where, 1000);
    throw FileError(message + ": " + printable(reason, 1000));
}

/// The whole text of a file, a pipe or a device, of at most 100 MB (as the header of a safetensors file).
inline std::string read_text(const std::filesystem::path& path) {
    constexpr std::size_t longest = 100'000'000, piece = 1 << 16;
    std::error_code ignored;
    std::ifstream in(path, std::ios::binary);
    if (!in || std::filesystem::is_directory(path, ignored)) input_error(path.string(), "", "cannot be opened");
    std::string text;
    while (in) {
        const std::size_t before = text.size();
        text.resize(before + piece);
        in.read(text.data() + before, piece);
        text.resize(before + static_cast<std::size_t>(in.gcount()));
        if (text.size() > longest) input_error(path.string(), "", "longer than 100 MB");
    }
    if (in.bad()) input_error(path.string(), "", "cannot be read");
    return text;
}

/// Levenshtein distance, for "did you mean".
inline std::size_t edit_distance(std::string_view a, std::string_view b) {
    std::vector<std::size_t> row(b.size() + 1);
    for (std::size_t j = 0; j <= b.size(); ++j) row[j] = j;
    for (std::size_t i = 1; i <= a.size(); ++i) {
        std::size_t diagonal = std::exchange(row[0], i);
        for (std::size_t j = 1; j <= b.size(); ++j) {
            const std::size_t substituted = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
            diagonal = std::exchange(row[j], std::min({row[j] + 1, row[j - 1] + 1, substituted}));
        }
    }
    return row[b.size()];
}

/// The checks that nlohmann's DOM parser leaves out, as a first pass. (Its callback interface could do both in one pass,
/// but takes quadratic time for an object with many members.)
class JsonCheck : public nlohmann::json_sax<nlohmann::json> {
public:
    explicit JsonCheck(const std::string& file) : file_(file) {}

    bool null() override { return true; }
    bool boolean(bool) override { return true; }
    bool number_integer(number_integer_t) override { return true; }
    bool number_unsigned(number_unsigned_t) override { return true; }
    bool number_float(number_float_t, const string_t&) override { return true; }
    bool string(string_t&) override { return true; }
    bool binary(binary_t&) override { return true; }
    bool start_object(std::size_t) override { return open(); }
    bool start_array(std::size_t) override { return open(); }
    bool end_object() override { return close(); }
    bool end_array() override { return close(); }
    bool key(string_t& name) override {
        if (!keys_.back().insert(name).second) input_error(file_, "", "duplicate key \"" + name + "\"");
        return true;
    }
    bool parse_error(std::size_t, const std::string&, const nlohmann::json::exception& error) override {
        std::string_view what = error.what();
        if (const auto at = what.find("] "); at != std::string_view::npos) what.remove_prefix(at + 2);
        input_error(file_, "not JSON", what);
    }

private:
    bool open() {
        if (keys_.size() == 64) input_error(file_, "", "nested deeper than 64 levels");
        keys_.emplace_back();
        return true;
    }
    bool close() {
        keys_.pop_back();
        return true;
    }
    const std::string& file_;
    std::vector<std::unordered_set<std::string>> keys_;  // of each open object or list
};

/// Parses a whole document; syntax errors, invalid UTF-8, duplicate keys and nesting beyond 64 levels are InputErrors.
inline nlohmann::json parse_json(std::string_view text, const std::string& file) {
    JsonCheck check(file);
    nlohmann::json::sax_parse(text.begin(), text.end(), &check);
    return nlohmann::json::parse(text.begin(), text.end());
}

/// A view of one JSON value that knows its file and JSON pointer. Reading checks type and range; finish() rejects
/// the keys that nobody asked for.
class JsonReader {
public:
    JsonReader(const nlohmann::json& value, std::shared_ptr<const std::string> file, std::string pointer = "")
        : value_(&value), file_(std::move(file)), pointer_(std::move(pointer)) {}
    JsonReader(const nlohmann::json& value, const std::string& file)
        : JsonReader(value, std::make_shared<const std::string>(file)) {}

    const nlohmann::json& value() const { return *value_; }
    const std::string& file() const { return *file_; }
    const std::string& pointer() const { return pointer_; }

    [[noreturn]] void fail(std::string_view reason) const { input_error(*file_, pointer_.empty() ? "/" : pointer_, reason); }

    void require_object() const {
        if (!value_->is_object()) fail("must be an object");
    }
    /// Whether an optional key is there; counts as asking for it.
    bool has(const std::string& key) {
        require_object();
        asked_.insert(key);
        return value_->contains(key);
    }
    JsonReader at(const std::string& key) {
        require_object();
        asked_.insert(key);
        const auto found = value_->find(key);
        if (found == value_->end()) fail("missing key \"" + key + "\"");
        return {*found, file_, pointer_ + "/" + escaped(key)};
    }
    std::vector<std::pair<std::string, JsonReader>> members() {
        require_object();
        std::vector<std::pair<std::string, JsonReader>> out;
        for (auto it = value_->begin(); it != value_->end(); ++it) out.emplace_back(it.key(), at(it.key()));
        return out;
    }
    std::vector<JsonReader> elements() const {
        if (!value_->is_array()) fail("must be a list");
        std::vector<JsonReader> out;
        out.reserve(value_->size());
        for (std::size_t i = 0; i < value_->size(); ++i) out.push_back({(*value_)[i], file_, pointer_ + "/" + std::to_string(i)});
        return out;
    }

    std::string as_text() const {
        if (!value_->is_string()) fail("must be a string");
        return value_->get<std::string>();
    }
    bool as_boolean() const {
        if (!value_->is_boolean()) fail("must be true or false");
        return value_->get<bool>();
    }
    std::int64_t as_integer(std::int64_t low, std::int64_t high) const {
        const bool too_large = value_->is_number_unsigned() &&
                               value_->get<std::uint64_t>() > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max());
        if (!value_->is_number_integer()) fail("must be an integer");
        const std::int64_t number = too_large ? 0 : value_->get<std::int64_t>();
        if (too_large || number < low || number > high)
            fail("must be from " + std::to_string(low) + " to " + std::to_string(high));
        return number;
    }
    std::uint64_t as_unsigned() const {
        if (!value_->is_number_unsigned()) fail("must be an integer from 0 to 2^64 - 1");
        return value_->get<std::uint64_t>();
    }
    double as_real() const {
        if (!value_->is_number() || !std::isfinite(value_->get<double>())) fail("must be a finite number");
        return value_->get<double>();
    }

    std::string text(const std::string& key) { return at(key).as_text(); }
    bool boolean(const std::string& key) { return at(key).as_boolean(); }
    std::int64_t integer(const std::string& key, std::int64_t low, std::int64_t high) { return at(key).as_integer(low, high); }

    /// One of a fixed set of words; returns its index.
    std::size_t choice(const std::string& key, std::initializer_list<std::string_view> words) {
        const JsonReader item = at(key);
        const std::string word = item.as_text();
        std::string list;
        for (auto it = words.begin(); it != words.end(); ++it) {
            if (*it == word) return static_cast<std::size_t>(it - words.begin());
            list += (list.empty() ? "" : ", ") + std::string(*it);
        }
        item.fail("must be one of " + list);
    }

    /// Counts a key as asked for, present or not.
    void allow(const std::string& key) { asked_.insert(key); }

    /// Rejects keys that were never asked for.
    void finish() const {
        require_object();
        for (auto it = value_->begin(); it != value_->end(); ++it) {
            if (asked_.contains(it.key())) continue;
            std::string hint;
            std::size_t best = 3;
            for (const std::string& known : asked_)
                if (const std::size_t d = edit_distance(known, it.key()); d < best && d < known.size()) {
                    best = d;
                    hint = " (did you mean \"" + known + "\"?)";
                }
            input_error(*file_, pointer_ + "/" + escaped(it.key()), "unknown key" + hint);
        }
    }

private:
    static std::string escaped(const std::string& key) {
        std::string out;
        for (const char ch : key) out += ch == '~' ? std::string("~0") : ch == '/' ? std::string("~1") : std::string(1, ch);
        return out;
    }

    const nlohmann::json* value_;
    std::shared_ptr<const std::string> file_;
    std::string pointer_;
    std::set<std::string> asked_;
};

}  // namespace bitreplay::detail
