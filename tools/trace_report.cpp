#include "tools/trace_report.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "tools/report.hpp"

namespace bitreplay::tools {
namespace {

using Json = nlohmann::ordered_json;

std::int64_t truncated_terms(const TraceStep& step) {
    return std::ranges::count_if(step.terms, [&](const DotTerm& term) {
        return std::ldexp(static_cast<double>(term.significand), term.exponent - term.fraction_bits) !=
               std::ldexp(static_cast<double>(term.kept), step.top - step.rule.align_bits);
    });
}

std::string term_text(const TraceStep& step, const DotTerm& term) {
    const std::string name = term.k < 0 ? "c" : fmt::format("k={}", term.k);
    const std::string exact = exact_value(term.significand, term.exponent - term.fraction_bits),
                      kept = exact_value(term.kept, step.top - step.rule.align_bits);
    return exact == kept ? fmt::format("{}: {}", name, exact)
                         : fmt::format("{}: {}, truncated to {}", name, exact, kept);
}

std::string step_text(const TraceStep& step, const std::string& indent, bool terms) {
    std::string out = fmt::format("{}k {}:{}  ", indent, step.first, step.last);
    if (step.rule.kind == DotStep::Kind::add_c)
        return out + fmt::format("{} + {} -> {}\n", show(step.c), show(step.addend), show(step.d));
    if (step.rule.kind == DotStep::Kind::fma_chain)
        return out + fmt::format("{} -> {} by fused multiply-adds\n", show(step.c), show(step.d));
    if (step.special) return out + fmt::format("{} -> {}: infinity or NaN\n", show(step.c), show(step.d));
    const std::int64_t cut = truncated_terms(step);
    out += fmt::format("c {}  e_max {}  kept to 2^{}  {} of {} terms truncated  sum {} -> {}\n",
                       show(step.c),
                       step.top,
                       step.top - step.rule.align_bits,
                       cut,
                       step.terms.size(),
                       exact_value(step.sum, step.top - step.rule.align_bits),
                       show(step.d));
    if (terms)
        for (const DotTerm& term : step.terms) out += indent + "    " + term_text(step, term) + "\n";
    return out;
}

/// Long lists are cut unless every term is asked for.
template <class List, class Line>
void lines(std::string& out, const List& list, const std::string& indent, bool whole, const Line& line) {
    constexpr std::size_t shown = 8;
    for (std::size_t i = 0; i < list.size(); ++i) {
        if (!whole && list.size() > 2 * shown && i == shown) {
            out += fmt::format("{}... {} more (--terms shows all)\n", indent, list.size() - 2 * shown);
            i = list.size() - shown;
        }
        out += line(list[i]);
    }
}

void tree(std::string& out, const TraceNode& node, int level, const TraceText& how) {
    const std::string indent(static_cast<std::size_t>(2 * level), ' '), more = indent + "  ";
    out += fmt::format("{}{} = {}\n", indent, node.title, show(node.value));
    if (level >= how.depth && !node.parts.empty()) {
        out += fmt::format("{}({} parts below, --depth shows more)\n", more, node.parts.size());
        return;
    }
    for (std::size_t i = 0; i < node.parts.size(); ++i) {
        tree(out, node.parts[i], level + 1, how);
        if (i < node.sums.size())
            out += fmt::format("{}+ {} -> {}\n", more, show(node.sums[i].first), show(node.sums[i].second));
    }
    lines(out, node.summands, more, how.terms, [&](const TraceFact& summand) {
        return fmt::format("{}+ element {}: {}\n", more, summand.name, show(summand.value));
    });
    lines(out, node.facts, more, how.terms, [&](const TraceFact& fact) {
        return fmt::format("{}{}: {}\n", more, fact.name, show(fact.value));
    });
    for (const TraceStep& step : node.steps) out += step_text(step, more, how.terms);
}

std::string hex(const TraceValue& value) { return show(value).substr(0, show(value).find(' ')); }

Json value_json(const TraceValue& value) { return {{"format", named(value.format).name}, {"bits", hex(value)}}; }

Json facts_json(const std::vector<TraceFact>& facts) {
    Json out = Json::array();
    for (const TraceFact& fact : facts) out.push_back({{"name", fact.name}, {"bits", hex(fact.value)}});
    return out;
}

Json step_json(const TraceStep& step) {
    constexpr std::string_view kinds[] = {"fused_dot", "add_c", "fma_chain"};
    Json out{{"kind", kinds[static_cast<std::size_t>(step.rule.kind)]},
             {"first", step.first},
             {"last", step.last},
             {"c", hex(step.c)},
             {"d", hex(step.d)}};
    if (step.rule.kind == DotStep::Kind::add_c) out["addend"] = hex(step.addend);
    if (step.rule.kind != DotStep::Kind::fused_dot || step.special) return out;
    out["e_max"] = step.top;
    out["grid"] = step.top - step.rule.align_bits;
    out["sum"] = step.sum;
    out["terms"] = Json::array();
    for (const DotTerm& term : step.terms)
        out["terms"].push_back({{"k", term.k},
                                {"significand", term.significand},
                                {"exponent", term.exponent - term.fraction_bits},
                                {"kept", term.kept}});
    return out;
}

Json node_json(const TraceNode& node) {
    Json out{{"title", node.title}, {"value", value_json(node.value)}};
    if (!node.parts.empty()) {
        out["parts"] = Json::array();
        for (const TraceNode& part : node.parts) out["parts"].push_back(node_json(part));
        out["sums"] = Json::array();
        for (const auto& [part, sum] : node.sums) out["sums"].push_back({{"part", hex(part)}, {"sum", hex(sum)}});
    }
    if (!node.summands.empty()) out["summands"] = facts_json(node.summands);
    if (!node.facts.empty()) out["facts"] = facts_json(node.facts);
    if (!node.steps.empty()) {
        out["steps"] = Json::array();
        for (const TraceStep& step : node.steps) out["steps"].push_back(step_json(step));
    }
    return out;
}

Json trace_json(const Trace& trace) {
    Json out{{"op", trace.op},
             {"element", trace.element},
             {"gpu", trace.gpu},
             {"kernel", trace.kernel},
             {"arithmetic", trace.arithmetic},
             {"order", trace.order},
             {"result", value_json(trace.result)}};
    if (trace.expected) out["expected"] = value_json(*trace.expected);
    out["root"] = node_json(trace.root);
    return out;
}

std::string cut(const std::string& text) {
    constexpr std::size_t line = 160;
    return text.size() <= line ? text : text.substr(0, line) + " ...";
}

std::string head(const Trace& trace) {
    std::string out = fmt::format("{} on {}\n", trace.kernel, trace.gpu);
    if (!trace.arithmetic.empty()) out += fmt::format("  instruction  {}\n", trace.arithmetic);
    out += fmt::format("  order        {}\n  sum          {}\n  result       {}\n",
                       cut(trace.order),
                       show(trace.root.value),
                       show(trace.result));
    return out;
}

std::string place(const Trace& trace) { return fmt::format("{} [{}]", one_line(trace.op), fmt::join(trace.element, ", ")); }

std::string recorded(const Trace& trace) {
    if (!trace.expected) return "no output was recorded there\n";
    return fmt::format(
        "recorded {}: {}\n", show(*trace.expected), *trace.expected == trace.result ? "equal" : "DIFFERENT");
}

void dot_node(std::string& out, const TraceNode& node, int depth, int& count, int parent) {
    const int id = count++;
    std::string label = node.title;
    if (!node.summands.empty()) {
        label += "\\nelements";
        for (std::size_t i = 0; i < node.summands.size() && i < 6; ++i) label += " " + node.summands[i].name;
        if (node.summands.size() > 6) label += " ...";
    }
    out += fmt::format("  n{} [label=\"{}\\n{}\"];\n", id, label, show(node.value));
    if (parent >= 0) out += fmt::format("  n{} -> n{};\n", id, parent);
    if (depth == 0 && !node.parts.empty()) {
        out += fmt::format(
            "  n{0} [label=\"{1} parts\", shape=plaintext];\n  n{0} -> n{2};\n", count, node.parts.size(), id);
        ++count;
        return;
    }
    for (const TraceNode& part : node.parts) dot_node(out, part, depth - 1, count, id);
}

}  // namespace

std::string to_text(const Trace& trace, const TraceText& how) {
    std::string out = place(trace) + "\n" + head(trace) + recorded(trace) + "\n";
    tree(out, trace.root, 0, how);
    return out;
}

std::string to_json(const Trace& trace) {
    return trace_json(trace).dump(1, ' ', true, Json::error_handler_t::replace) + "\n";
}

std::string to_text(const Trace& a, const Trace& b, const Parting& parting) {
    std::string out = place(a) + "\n" + head(a) + head(b) + recorded(a);
    if (!parting.apart) return out + "both compute the same values in the same order\n";
    out += fmt::format("first difference: {}\n  {}\n", parting.where, parting.why);
    if (parting.a && parting.b)
        out += fmt::format("  after it: {} on {} has {}; {} on {} has {}\n",
                           a.kernel,
                           a.gpu,
                           show(*parting.a),
                           b.kernel,
                           b.gpu,
                           show(*parting.b));
    if (a.result == b.result) out += "  the output is the same all the same\n";
    return out;
}

std::string to_json(const Trace& a, const Trace& b, const Parting& parting) {
    Json out{{"a", trace_json(a)}, {"b", trace_json(b)}, {"apart", parting.apart}};
    if (parting.apart) {
        out["where"] = parting.where;
        out["why"] = parting.why;
        if (parting.summands) out["summands"] = {parting.summands->first, parting.summands->second};
        if (parting.a && parting.b) {
            out["a_value"] = value_json(*parting.a);
            out["b_value"] = value_json(*parting.b);
        }
    }
    return out.dump(1, ' ', true, Json::error_handler_t::replace) + "\n";
}

std::string to_dot(const Trace& trace, int depth) {
    std::string out = fmt::format(
        "digraph sum {{\n  rankdir=BT;\n  node [shape=box, fontname=monospace];\n  label=\"{}, {} on {}\";\n",
        place(trace),
        trace.kernel,
        trace.gpu);
    int count = 0;
    dot_node(out, trace.root, depth, count, -1);
    return out + "}\n";
}

}  // namespace bitreplay::tools
