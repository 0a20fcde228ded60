#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace bitreplay {

namespace detail {
struct ParamsData;
}

/// The `params` object of a manifest op, read strictly: wrong types and ranges throw InputError naming file and JSON
/// pointer, and finish() does so for keys that no getter asked for. Copies share what was asked.
class Params {
public:
    Params();  ///< empty: every getter gives its default
    /// From JSON text; `file` and `pointer` name the place in messages.
    static Params parse(std::string_view json, const std::string& file, const std::string& pointer);

    bool has(const std::string& key) const;
    /// A number from low to high; where they are 0 and 1, true and false are accepted too.
    std::int64_t integer(const std::string& key, std::int64_t fallback, std::int64_t low, std::int64_t high) const;
    double real(const std::string& key, double fallback) const;
    bool boolean(const std::string& key, bool fallback) const;
    std::string text(const std::string& key, const std::string& fallback) const;
    std::vector<std::int64_t> integers(const std::string& key) const;  ///< empty if absent
    std::vector<std::string> texts(const std::string& key) const;      ///< empty if absent
    Params object(const std::string& key) const;                       ///< empty if absent; finish() it as well
    std::vector<std::string> keys() const;
    /// The whole value as JSON text ("{}" if empty).
    std::string json() const;
    /// One value as JSON text; InputError if the key is absent. Counts as asked for.
    std::string json_of(const std::string& key) const;
    /// Counts a key as asked for, present or not.
    void ignore(const std::string& key) const;
    /// Sets or replaces a value (kernel defaults, command line); `json` is JSON text.
    void set(const std::string& key, std::string_view json);

    void finish() const;
    /// Throws an InputError about this key: "file: pointer/key: reason".
    [[noreturn]] void fail(const std::string& key, const std::string& reason) const;

private:
    std::shared_ptr<detail::ParamsData> data_;
};

}  // namespace bitreplay
