// Where two traces part: both are read in the order in which they were computed, up to the first value that differs.

#include <algorithm>
#include <cmath>
#include <iterator>
#include <map>
#include <sstream>

#include "emu/explain.hpp"

namespace bitreplay {
namespace {

/// One thing that happened: a step of a walk, or a named value.
struct Event {
    const TraceStep* step;  ///< or nullptr
    std::string name;
    TraceValue value;
};

void list(const TraceNode& node, std::vector<Event>& out) {
    for (std::size_t i = 0; i < node.parts.size(); ++i) {
        list(node.parts[i], out);
        if (i < node.sums.size())
            out.push_back({nullptr,
                           "the sum after part " + std::to_string(i) + " (" + node.parts[i].title + ")",
                           node.sums[i].second});
    }
    for (const TraceFact& summand : node.summands) out.push_back({nullptr, "summand " + summand.name, summand.value});
    for (const TraceFact& fact : node.facts) out.push_back({nullptr, fact.name + " (" + node.title + ")", fact.value});
    for (const TraceStep& step : node.steps) out.push_back({&step, {}, step.d});
    if (node.steps.empty()) out.push_back({nullptr, "the value of " + node.title, node.value});
}

std::string range_of(std::int64_t first, std::int64_t last) {
    return "k=" + std::to_string(first) + ".." + std::to_string(last - 1);
}

/// What a list of consecutive steps kept of each product, as an exact double (at most 50 bits).
std::map<std::int64_t, double> kept(const std::vector<const TraceStep*>& steps) {
    std::map<std::int64_t, double> out;
    for (const TraceStep* step : steps)
        for (const DotTerm& term : step->terms)
            if (term.k >= 0)
                out[term.k] += std::ldexp(static_cast<double>(term.kept), step->top - step->rule.align_bits);
    return out;
}

std::string grid_of(const TraceStep& step) {
    return "keeps " + std::to_string(step.rule.align_bits) + " bits below e_max " + std::to_string(step.top) +
           ", down to 2^" + std::to_string(step.top - step.rule.align_bits);
}

const DotTerm* find_term(const std::vector<const TraceStep*>& steps, std::int64_t k, const TraceStep*& at) {
    for (const TraceStep* step : steps)
        for (const DotTerm& term : step->terms)
            if (term.k == k) {
                at = step;
                return &term;
            }
    return nullptr;
}

std::string contribution(const TraceStep& step, const DotTerm& term) {
    const std::string value = exact_value(term.kept, step.top - step.rule.align_bits);
    if (term.kept == 0) return "keeps nothing of it";
    const double exact = std::ldexp(static_cast<double>(term.significand), term.exponent - term.fraction_bits);
    const bool whole = std::ldexp(static_cast<double>(term.kept), step.top - step.rule.align_bits) == exact;
    return (whole ? "keeps all of it, " : "truncates it to ") + value;
}

/// Why two lists of steps over the same products, from the same accumulator, end differently.
std::string reason(const std::string& a_name,
                   const std::vector<const TraceStep*>& a,
                   const std::string& b_name,
                   const std::vector<const TraceStep*>& b) {
    std::string out;
    if (a.front()->special || b.front()->special) return "an infinity or NaN takes part";
    const auto kept_a = kept(a), kept_b = kept(b);
    // The product of which the two keep the most different amounts.
    std::int64_t most = -1;
    double apart = 0;
    std::int64_t count = 0;
    for (const auto& [k, value] : kept_a) {
        const auto other = kept_b.find(k);
        if (other == kept_b.end() || other->second == value) continue;
        ++count;
        if (std::abs(value - other->second) > apart) {
            apart = std::abs(value - other->second);
            most = k;
        }
    }
    if (most >= 0) {
        const TraceStep *step_a = nullptr, *step_b = nullptr;
        const DotTerm *term_a = find_term(a, most, step_a), *term_b = find_term(b, most, step_b);
        out = "product k=" + std::to_string(most) + " is " +
              exact_value(term_a->significand, term_a->exponent - term_a->fraction_bits) + ": " + a_name + " " +
              grid_of(*step_a) + " and " + contribution(*step_a, *term_a) + "; " + b_name + " " + grid_of(*step_b) +
              " and " + contribution(*step_b, *term_b);
        if (count > 1) out += " (" + std::to_string(count) + " products differ so)";
        return out;
    }
    if (a.size() != b.size())
        return "the products are kept alike, but " + a_name + " adds them in " + std::to_string(a.size()) +
               (a.size() == 1 ? " step" : " steps") + " and " + b_name + " in " + std::to_string(b.size()) +
               ", rounding after each";
    const auto of_c = [](const TraceStep& step) {
        return step.terms.empty()
                   ? 0
                   : std::ldexp(static_cast<double>(step.terms.front().kept), step.top - step.rule.align_bits);
    };
    if (of_c(*a.front()) != of_c(*b.front()))
        return "the accumulator itself is cut differently: " + a_name + " " + grid_of(*a.front()) + "; " + b_name +
               " " + grid_of(*b.front());
    return "the terms are kept alike, but the sum is rounded differently: " + a_name + " to " +
           std::to_string(a.front()->rule.keep) + " fraction bits, " + b_name + " to " +
           std::to_string(b.front()->rule.keep);
}

/// Reads the events of both sides in step.
class Reader {
public:
    Reader(const Trace& a, const Trace& b) : a_name_(side(a, b)), b_name_(side(b, a)) {
        list(a.root, a_);
        list(b.root, b_);
    }

    Parting run() {
        while (i_ < a_.size() && j_ < b_.size()) {
            const Event &x = a_[i_], &y = b_[j_];
            if (x.step != nullptr && y.step != nullptr) {
                if (const Parting out = steps(); out.apart) return out;
                continue;
            }
            if ((x.step == nullptr) != (y.step == nullptr)) return structure(x, y);
            if (!(x.value == y.value)) {
                if (x.name == y.name)
                    return {true, x.name, "computed from equal values before it", {}, x.value, y.value};
                return {true,
                        a_name_ + ": " + x.name + "; " + b_name_ + ": " + y.name,
                        "the order of the sum differs",
                        {},
                        x.value,
                        y.value};
            }
            ++i_;
            ++j_;
        }
        if (i_ == a_.size() && j_ == b_.size()) return {};
        const bool a_goes_on = i_ < a_.size();
        return {true,
                "at the end",
                (a_goes_on ? a_name_ : b_name_) + " goes on where " + (a_goes_on ? b_name_ : a_name_) + " is done",
                {},
                {},
                {}};
    }

private:
    /// What tells a trace from the other one: the GPU, or the words of the kernel that the other one does not have.
    static std::string side(const Trace& trace, const Trace& other) {
        const auto words = [](const std::string& text) {
            std::istringstream in(text);
            return std::vector<std::string>(std::istream_iterator<std::string>(in), {});
        };
        const std::vector<std::string> others = words(other.kernel);
        std::string out;
        for (const std::string& word : words(trace.kernel))
            if (std::find(others.begin(), others.end(), word) == others.end()) out += (out.empty() ? "" : " ") + word;
        if (trace.gpu != other.gpu) out += (out.empty() ? "" : " on ") + trace.gpu;
        return out.empty() ? trace.kernel : out;
    }

    /// What an event does next, for people.
    static std::string doing(const Event& event) {
        if (event.step == nullptr) return "forms " + event.name + ", " + show(event.value);
        return "goes on with " + range_of(event.step->first, event.step->last) + " from " + show(event.step->c);
    }

    Parting structure(const Event& x, const Event& y) const {
        const Event& step = x.step != nullptr ? x : y;
        return {true,
                "before " + range_of(step.step->first, step.step->last),
                "the order of the sum differs: " + a_name_ + " " + doing(x) + "; " + b_name_ + " " + doing(y),
                std::pair(step.step->first, step.step->last),
                {},
                {}};
    }

    /// Steps of both sides from here to where both have taken the same products.
    Parting steps() {
        const Event &x = a_[i_], &y = b_[j_];
        if (x.step->first != y.step->first || !(x.step->c == y.step->c)) {
            Parting out = structure(x, y);
            if (x.step->first == y.step->first)
                out.why = "the order of the sum differs: " + a_name_ +
                          (x.step->c.bits == 0 ? " starts a new part from +0" : " goes on from " + show(x.step->c)) +
                          "; " + b_name_ +
                          (y.step->c.bits == 0 ? " starts a new part from +0" : " goes on from " + show(y.step->c));
            return out;
        }
        std::vector<const TraceStep*> a, b;
        const auto take = [](const std::vector<Event>& events, std::size_t& at, std::vector<const TraceStep*>& out) {
            const bool more = at < events.size() && events[at].step != nullptr &&
                              (out.empty() || events[at].step->first >= out.back()->first);
            if (more) out.push_back(events[at++].step);
            return more;
        };
        bool together = take(a_, i_, a) && take(b_, j_, b);
        // An instruction of several steps reports its whole range with each of them.
        const auto goes_on = [](const std::vector<Event>& events, std::size_t at, const TraceStep* last) {
            return at < events.size() && events[at].step != nullptr && events[at].step->first == last->first &&
                   events[at].step->last == last->last;
        };
        while (together) {
            if (goes_on(a_, i_, a.back())) {
                together = take(a_, i_, a);
            } else if (goes_on(b_, j_, b.back())) {
                together = take(b_, j_, b);
            } else if (a.back()->last != b.back()->last) {
                together = a.back()->last < b.back()->last ? take(a_, i_, a) : take(b_, j_, b);
            } else {
                break;
            }
        }
        const std::int64_t first = a.front()->first, last = std::max(a.back()->last, b.back()->last);
        if (together && a.back()->d == b.back()->d) return {};
        const std::string why = together ? reason(a_name_, a, b_name_, b)
                                         : "the order of the sum differs: one side ends a walk inside the other's step";
        return {true, range_of(first, last), why, std::pair(first, last), a.back()->d, b.back()->d};
    }

    std::string a_name_, b_name_;
    std::vector<Event> a_, b_;
    std::size_t i_ = 0, j_ = 0;
};

}  // namespace

Parting first_difference(const Trace& a, const Trace& b) {
    Parting out = Reader(a, b).run();
    if (!out.apart && !(a.result == b.result))
        return {true, "after the sum", "the output is rounded or finished differently", {}, a.result, b.result};
    return out;
}

}  // namespace bitreplay
