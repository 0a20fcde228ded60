#include "reduction_trees/cublaslt_log.hpp"

#include <algorithm>
#include <vector>

#include "formats/error.hpp"
#include "formats/strict_json.hpp"
#include "reduction_trees/embedded.hpp"

namespace bitreplay {
namespace {

/// How the log spells what recipes ask for.
struct Spelling {
    std::vector<std::string> lists;            ///< the bracketed lists of a line that hold fields
    std::vector<std::string> fields;           ///< fields outside of lists
    std::string before_call, after_call, call;  ///< what stands before and after the letters of the call, and the field they are
    std::map<std::string, std::string> names;  ///< other spellings of a field's name
    std::vector<std::string> prefixes;         ///< of values
    std::map<std::string, std::map<std::string, std::string>> values;  ///< other spellings of a field's value
    std::map<std::string, LogEpilogue> epilogues;
};

const Spelling& spelling() {
    static const Spelling loaded = [] {
        Spelling out;
        for (const auto& [stem, text] : detail::embedded_recipes()) {
            const std::string file = "reduction_trees/recipes/" + std::string(stem) + ".json";
            const nlohmann::json document = detail::parse_json(text, file);
            detail::JsonReader reader(document, file);
            if (!reader.has("cublaslt_log")) continue;
            detail::JsonReader log = reader.at("cublaslt_log");
            reader.finish();
            for (const auto& item : log.at("lists").elements()) out.lists.push_back(item.as_text());
            for (const auto& item : log.at("fields").elements()) out.fields.push_back(item.as_text());
            detail::JsonReader call = log.at("call");
            out.before_call = call.text("before");
            out.after_call = call.text("after");
            out.call = call.text("field");
            call.finish();
            for (const auto& item : log.at("prefixes").elements()) out.prefixes.push_back(item.as_text());
            for (const auto& [name, item] : log.at("names").members()) out.names[name] = item.as_text();
            for (auto& [name, item] : log.at("values").members())
                for (const auto& [from, to] : item.members()) out.values[name][from] = to.as_text();
            for (auto& [name, item] : log.at("epilogues").members()) {
                out.epilogues[name] = {
                    .bias = item.boolean("bias"), .gelu = item.boolean("gelu"), .relu = item.boolean("relu")};
                item.finish();
            }
            log.finish();
        }
        return out;
    }();
    return loaded;
}

/// What is inside "name=[...]"; nothing if the line has no such list.
std::string_view list_of(std::string_view line, const std::string& name) {
    const std::size_t at = line.find(" " + name + "=[");
    if (at == std::string_view::npos) return {};
    const std::size_t begin = at + name.size() + 3, end = line.find(']', begin);
    if (end == std::string_view::npos) throw InputError("\"" + name + "=[\" has no end");
    if (line.find(" " + name + "=[", end) != std::string_view::npos)
        throw InputError("more than one \"" + name + "=[\": a log line is one product");
    return line.substr(begin, end - begin);
}

void add_fields(std::string_view list, CublasLtFields& out) {
    const Spelling& known = spelling();
    constexpr std::string_view separators = " \t\r\n,;";
    while (true) {
        const std::size_t begin = list.find_first_not_of(separators);
        if (begin == std::string_view::npos) return;
        const std::size_t end = std::min(list.find_first_of(separators, begin), list.size());
        const std::string_view field = list.substr(begin, end - begin);
        list.remove_prefix(end);
        const std::size_t equals = field.find('=');
        if (equals == std::string_view::npos || equals == 0 || equals + 1 == field.size())
            throw InputError("\"" + detail::printable(field) + "\" is not name=value");
        if (field.size() > 200)
            throw InputError("the field " + detail::printable(field.substr(0, equals), 40) + " is too long");
        std::string name(field.substr(0, equals));
        std::string_view text = field.substr(equals + 1);
        if (const auto other = known.names.find(name); other != known.names.end()) name = other->second;
        for (const std::string& prefix : known.prefixes)
            if (text.starts_with(prefix)) {
                text.remove_prefix(prefix.size());
                break;
            }
        std::string value(text);
        if (const auto values = known.values.find(name); values != known.values.end())
            if (const auto other = values->second.find(value); other != values->second.end()) value = other->second;
        const auto [place, is_new] = out.emplace(name, value);
        if (!is_new && place->second != value)
            throw InputError(detail::printable(name) + " is " + detail::printable(place->second) + " and " +
                             detail::printable(value));
    }
}

/// The letters in the name of the call ("TST" of [cublasLtTSTMatmul]); nothing if it has none.
std::string_view call_letters(std::string_view line) {
    const Spelling& known = spelling();
    for (std::size_t at = line.find(known.before_call); at != std::string_view::npos; at = line.find(known.before_call, at + 1)) {
        const std::string_view rest = line.substr(at + known.before_call.size());
        const std::size_t end = rest.find_first_not_of("ABCDEFGHIJKLMNOPQRSTUVWXYZ");
        // The letters end where "Matmul]" begins, with a capital.
        if (end == std::string_view::npos || end < 2 || !rest.substr(end - 1).starts_with(known.after_call)) continue;
        return rest.substr(0, end - 1);
    }
    return {};
}

}  // namespace

CublasLtFields parse_cublaslt_log(std::string_view line) {
    CublasLtFields out;
    const bool whole = line.find('[') != std::string_view::npos;
    if (whole) {
        const std::string padded = " " + std::string(line);
        for (const std::string& name : spelling().lists) add_fields(list_of(padded, name), out);
        for (const std::string& name : spelling().fields)
            if (const std::size_t at = padded.find(" " + name + "="); at != std::string::npos)
                add_fields(std::string_view(padded).substr(at + 1, padded.find(' ', at + 1) - at - 1), out);
        if (const std::string_view letters = call_letters(line); !letters.empty()) out.emplace(spelling().call, letters);
    } else {
        add_fields(line, out);
    }
    if (!out.contains("algoId")) throw InputError("the line has no algoId");
    return out;
}

LogEpilogue log_epilogue(const CublasLtFields& fields) {
    const auto field = fields.find("epilogue");
    if (field == fields.end()) return {};
    const auto known = spelling().epilogues.find(field->second);
    if (known == spelling().epilogues.end())
        throw NotModelled("cuBLASLt's epilogue=" + detail::printable(field->second) + " is not modelled");
    return known->second;
}

}  // namespace bitreplay
