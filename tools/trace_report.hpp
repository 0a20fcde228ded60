#pragma once

#include <string>

#include "emu/explain.hpp"

namespace bitreplay::tools {

struct TraceText {
    bool terms = false;  ///< every term of every step, not only how many were cut
    int depth = 3;       ///< levels of the tree that are drawn
};

/// A trace for people: what ran, then the tree of partial sums with the steps of each walk.
std::string to_text(const Trace& trace, const TraceText& how);
/// The same for programs, complete.
std::string to_json(const Trace& trace);
/// Where two traces part, for people ("" lines of two traces are not repeated) and for programs.
std::string to_text(const Trace& a, const Trace& b, const Parting& parting);
std::string to_json(const Trace& a, const Trace& b, const Parting& parting);
/// The tree of partial sums as a Graphviz digraph, down to `depth` levels.
std::string to_dot(const Trace& trace, int depth);

}  // namespace bitreplay::tools
