#pragma once
// Private: the traces of the three kinds of ops.

#include "emu/explain.hpp"

namespace bitreplay::detail {

/// Copies what the definition reports about one step.
TraceStep step_of(const DotEvent& event, const Format& d);

/// `element` as row and column, with leading dimensions folded; `shape` is that of the whole output.
std::pair<std::int64_t, std::int64_t> row_and_column(const std::vector<std::int64_t>& element,
                                                     const std::vector<std::int64_t>& shape);

void trace_gemm(const OpRequest& request, Trace& trace);
void trace_attention(const OpRequest& request, std::pair<std::int64_t, std::int64_t> element, Trace& trace);
void trace_reduction(const OpRequest& request, std::int64_t row, Trace& trace);

}  // namespace bitreplay::detail
