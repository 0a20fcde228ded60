#include <map>
#include <string>

#include "arch/embedded.hpp"
#include "arch/mufu.hpp"
#include "formats/strict_json.hpp"

namespace bitreplay {
namespace {

using detail::JsonReader;

/// One table. The coefficients become multiples of 2^-sum_fraction; the offset joins the constants.
Mufu::Curve read_curve(JsonReader& reader, std::size_t rows) {
    Mufu::Curve curve;
    curve.low_bits = static_cast<int>(reader.integer("low_bits", 16, 17));
    curve.sum_fraction = static_cast<int>(reader.integer("sum_fraction", 30, 45));
    const auto scale = [&](const std::string& key, int low) {
        const auto fraction = reader.integer(key, 0, curve.sum_fraction - low);
        return std::int64_t{1} << (curve.sum_fraction - low - static_cast<int>(fraction));
    };
    constexpr int square_bits = 15;
    const std::int64_t constant = scale("c0_fraction", 0), linear = scale("c1_fraction", curve.low_bits),
                       square = scale("c2_fraction", square_bits);
    const std::int64_t offset = reader.integer("offset", -65536, 65536);
    const std::vector<JsonReader> c0 = reader.at("c0").elements(), c1 = reader.at("c1").elements(), c2 = reader.at("c2").elements();
    if (c0.size() != rows || c1.size() != rows || c2.size() != rows)
        reader.fail("c0, c1 and c2 must have " + std::to_string(rows) + " entries each");
    for (std::size_t i = 0; i < rows; ++i)
        curve.rows.push_back({c0[i].as_integer(0, 1 << 27) * constant + offset, c1[i].as_integer(-(1 << 20), 1 << 20) * linear,
                              c2[i].as_integer(-(1 << 17), 1 << 17) * square});
    return curve;
}

/// A table whose row number is the fraction's bits above low_bits.
Mufu::Curve read_uniform(JsonReader functions, int low_bits) {
    Mufu::Curve curve = read_curve(functions, std::size_t{1} << (23 - low_bits));
    if (curve.low_bits != low_bits) functions.fail("\"low_bits\" must be " + std::to_string(low_bits));
    functions.finish();
    return curve;
}

struct Table {
    Mufu unit;
    std::string_view json;
};

const std::map<std::string_view, Table>& built_in() {
    static const std::map<std::string_view, Table> tables = [] {
        std::map<std::string_view, Table> out;
        for (const auto& [stem, text] : detail::embedded_mufu())
            out.emplace(stem, Table{Mufu::parse(text, "arch/mufu/" + std::string(stem) + ".json"), text});
        return out;
    }();
    return tables;
}

const Table& find_table(std::string_view name) {
    const auto found = built_in().find(name);
    if (found != built_in().end()) return found->second;
    std::string known;
    for (const auto& row : built_in()) known += " " + std::string(row.first);
    throw InputError("mufu: unknown table \"" + detail::printable(name, 60) + "\"; known:" + known);
}

}  // namespace

Mufu Mufu::parse(std::string_view json, const std::string& file) {
    const nlohmann::json document = detail::parse_json(json, file);
    JsonReader reader(document, file);
    Mufu out;
    reader.text("name");
    reader.text("title");
    JsonReader functions = reader.at("functions");
    out.rcp_ = read_uniform(functions.at("rcp"), 16);
    out.rsq_even_ = read_uniform(functions.at("rsq_even"), 17);
    out.rsq_odd_ = read_uniform(functions.at("rsq_odd"), 17);
    out.sqrt_even_ = read_uniform(functions.at("sqrt_even"), 17);
    out.sqrt_odd_ = read_uniform(functions.at("sqrt_odd"), 17);
    out.ex2_ = read_uniform(functions.at("ex2"), 17);
    out.lg2_ = read_uniform(functions.at("lg2"), 17);
    out.sin_ = read_uniform(functions.at("sin"), 17);

    JsonReader tanh = functions.at("tanh");
    const std::vector<JsonReader> binades = tanh.at("binades").elements();
    if (binades.size() != out.tanh_binades_.size())
        tanh.fail("\"binades\" must have " + std::to_string(out.tanh_binades_.size()) + " entries");
    std::uint32_t rows = 0;
    for (std::size_t i = 0; i < binades.size(); ++i) {
        JsonReader item = binades[i];
        const int exponent = tanh_min_exponent + static_cast<int>(i);
        item.integer("exponent", exponent, exponent);
        out.tanh_binades_[i].row_bits = static_cast<int>(item.integer("row_bits", 0, 6));
        out.tanh_binades_[i].first_row = static_cast<std::uint32_t>(item.integer("first_row", rows, rows));
        item.finish();
        rows += 1U << out.tanh_binades_[i].row_bits;
    }
    out.tanh_ = read_curve(tanh, rows);
    if (out.tanh_.low_bits != 17) tanh.fail("\"low_bits\" must be 17");
    tanh.finish();
    functions.finish();
    reader.finish();
    return out;
}

const Mufu& mufu_table(std::string_view name) { return find_table(name).unit; }
std::string_view mufu_json(std::string_view name) { return find_table(name).json; }

std::vector<std::string_view> mufu_names() {
    std::vector<std::string_view> out;
    for (const auto& row : built_in()) out.push_back(row.first);
    return out;
}

const Mufu& mufu(const Gpu& gpu) {
    if (!gpu.mufu) throw NotModelled("gpu " + gpu.name + ": its special-function unit is not modelled");
    return mufu_table(gpu.mufu->table);
}

}  // namespace bitreplay
