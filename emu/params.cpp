#include "emu/params.hpp"

#include "formats/strict_json.hpp"

namespace bitreplay {
namespace detail {

struct ParamsData {
    nlohmann::json value = nlohmann::json::object();
    std::shared_ptr<const std::string> file = std::make_shared<const std::string>("params");
    std::string pointer;
    std::set<std::string> asked;

    /// The value of a key, or none if it is absent.
    std::optional<JsonReader> find(const std::string& key) {
        asked.insert(key);
        JsonReader reader(value, file, pointer);
        if (!reader.has(key)) return std::nullopt;
        return reader.at(key);
    }
};

}  // namespace detail

using detail::JsonReader;

Params::Params() : data_(std::make_shared<detail::ParamsData>()) {}

Params Params::parse(std::string_view json, const std::string& file, const std::string& pointer) {
    Params out;
    out.data_->value = detail::parse_json(json, file);
    out.data_->file = std::make_shared<const std::string>(file);
    out.data_->pointer = pointer;
    JsonReader(out.data_->value, out.data_->file, pointer).require_object();
    return out;
}

bool Params::has(const std::string& key) const { return data_->value.contains(key); }

std::int64_t Params::integer(const std::string& key, std::int64_t fallback, std::int64_t low, std::int64_t high) const {
    const auto item = data_->find(key);
    if (item && low == 0 && high == 1 && item->value().is_boolean()) return item->as_boolean() ? 1 : 0;
    return item ? item->as_integer(low, high) : fallback;
}

double Params::real(const std::string& key, double fallback) const {
    const auto item = data_->find(key);
    return item ? item->as_real() : fallback;
}

bool Params::boolean(const std::string& key, bool fallback) const {
    const auto item = data_->find(key);
    return item ? item->as_boolean() : fallback;
}

std::string Params::text(const std::string& key, const std::string& fallback) const {
    const auto item = data_->find(key);
    return item ? item->as_text() : fallback;
}

std::vector<std::int64_t> Params::integers(const std::string& key) const {
    std::vector<std::int64_t> out;
    if (const auto item = data_->find(key))
        for (const JsonReader& element : item->elements()) out.push_back(element.as_integer(INT64_MIN, INT64_MAX));
    return out;
}

std::vector<std::string> Params::texts(const std::string& key) const {
    std::vector<std::string> out;
    if (const auto item = data_->find(key))
        for (const JsonReader& element : item->elements()) out.push_back(element.as_text());
    return out;
}

Params Params::object(const std::string& key) const {
    Params out;
    if (const auto item = data_->find(key)) {
        item->require_object();
        out.data_->value = item->value();
        out.data_->file = data_->file;
        out.data_->pointer = item->pointer();
    }
    return out;
}

std::vector<std::string> Params::keys() const {
    std::vector<std::string> out;
    for (auto it = data_->value.begin(); it != data_->value.end(); ++it) out.push_back(it.key());
    return out;
}

std::string Params::json() const { return data_->value.dump(); }

std::string Params::json_of(const std::string& key) const {
    const auto item = data_->find(key);
    if (!item) fail(key, "missing key");
    return item->value().dump();
}

void Params::ignore(const std::string& key) const { data_->asked.insert(key); }

void Params::set(const std::string& key, std::string_view json) {
    auto copy = std::make_shared<detail::ParamsData>(*data_);
    copy->value[key] = detail::parse_json(json, *data_->file);
    data_ = std::move(copy);
}

void Params::finish() const {
    JsonReader reader(data_->value, data_->file, data_->pointer);
    for (const std::string& key : data_->asked) reader.allow(key);
    reader.finish();
}

void Params::fail(const std::string& key, const std::string& reason) const {
    detail::input_error(*data_->file, data_->pointer + "/" + key, reason);
}

}  // namespace bitreplay
