// Ops `mma` and `dot`: single tensor-core instructions.

#include <algorithm>
#include <array>

#include "arch/dot.hpp"
#include "emu/ops/op.hpp"
#include "emu/parallel.hpp"
#include "formats/convert.hpp"

namespace bitreplay {
namespace {

Instruction requested_instruction(const OpRequest& request) {
    const std::string text = request.params.text("instruction", "");
    if (text.empty()) request.fail("params: missing key \"instruction\"");
    request.params.finish();
    return parse_instruction(text);
}

/// Operands may be stored in a wider container of the same size (tf32 as F32) but not in another format.
void check_format(const OpRequest& request, const Tensor& tensor, const Format& format, const char* name) {
    const bool as_container = tensor.format() == fp32 && format == tf32;
    const bool as_byte = storage_bytes(format) == 1 && format.storage_bits() < 8 && storage_bytes(tensor.format()) == 1;
    if (tensor.format() != format && !as_container && !as_byte)
        request.fail(std::string("input ") + name + " is " + describe(tensor) + ", the instruction takes " + std::string(named(format).name));
}

/// What both ops ask for; shapes and c's format are theirs to check.
struct Operation {
    Instruction instruction;
    const DotRule& rule;
    const Tensor &a, &b;
    const Tensor* c;  ///< nullptr: zero
};

Operation read_operation(const OpRequest& request) {
    constexpr std::array<std::string_view, 3> names{"a", "b", "c?"};
    request.check_inputs(names);
    const Instruction instruction = requested_instruction(request);
    const DotRule& rule = request.gpu.dot_rule(instruction);
    const Tensor &a = request.input("a"), &b = request.input("b");
    check_format(request, a, rule.types.a, "a");
    check_format(request, b, rule.types.b, "b");
    return {instruction, rule, a, b, request.in.contains("c") ? &request.input("c") : nullptr};
}

/// The codes [first, first + count) of a tensor, as the unit sees them.
void load(const Tensor& tensor, std::int64_t first, const Format& stored, const Format& unit, std::span<Operand> out) {
    for (std::size_t i = 0; i < out.size(); ++i) out[i] = decode_operand(stored, unit, tensor.get(first + static_cast<std::int64_t>(i)));
}

}  // namespace

OpResult run_mma(const OpRequest& request) {
    const Operation operation = read_operation(request);
    const Instruction& instruction = operation.instruction;
    const DotRule& rule = operation.rule;
    const Tensor &a = operation.a, &b = operation.b;
    const Tensor* c = operation.c;
    const int m = instruction.shape.m, n = instruction.shape.n, k = instruction.shape.k;
    if (a.rank() != 3 || a.dim(1) != m || a.dim(2) != k) request.fail("input a is " + describe(a) + ", not [tiles, " + std::to_string(m) + ", " + std::to_string(k) + "]");
    const std::int64_t tiles = a.dim(0);
    if (b.shape() != std::vector<std::int64_t>{tiles, n, k}) request.fail("input b is " + describe(b) + ", not " + describe({tiles, n, k}));
    if (c != nullptr) {
        check_format(request, *c, rule.types.c, "c");
        if (c->shape() != std::vector<std::int64_t>{tiles, m, n}) request.fail("input c is " + describe(*c) + ", not " + describe({tiles, m, n}));
    }
    Tensor d(rule.types.d, {tiles, m, n});
    const auto depth = static_cast<std::size_t>(k);
    parallel_for(tiles, 4, [&](std::int64_t first, std::int64_t last) {
        std::vector<Operand> rows(depth * static_cast<std::size_t>(m)), cols(depth * static_cast<std::size_t>(n));
        for (std::int64_t tile = first; tile < last; ++tile) {
            load(a, tile * m * k, rule.types.a, rule.unit_a, rows);
            load(b, tile * n * k, rule.types.b, rule.unit_b, cols);
            for (int i = 0; i < m; ++i)
                for (int j = 0; j < n; ++j) {
                    const std::int64_t at = (tile * m + i) * n + j;
                    const std::span<const Operand> row(rows.data() + depth * static_cast<std::size_t>(i), depth);
                    const std::span<const Operand> col(cols.data() + depth * static_cast<std::size_t>(j), depth);
                    d.set(at, dot_add(rule, row, col, c != nullptr ? c->get(at) : 0));
                }
        }
    });
    OpResult result;
    result.out[""] = std::move(d);
    return result;
}

OpResult run_dot(const OpRequest& request) {
    const Operation operation = read_operation(request);
    const Instruction& instruction = operation.instruction;
    const DotRule& rule = operation.rule;
    const Tensor &a = operation.a, &b = operation.b;
    const Tensor* c = operation.c;
    if (a.rank() != 2) request.fail("input a must be [n, k], not " + describe(a));
    if (b.shape() != a.shape()) request.fail("K or n differs: a is " + describe(a) + ", b is " + describe(b));
    const std::int64_t n = a.dim(0), k = a.dim(1);
    if (c != nullptr && c->size() != n) request.fail("input c must have " + std::to_string(n) + " elements, not " + describe(*c));
    Tensor d(rule.types.d, {n});
    parallel_for(n, 64, [&](std::int64_t first, std::int64_t last) {
        std::vector<Operand> row(static_cast<std::size_t>(k)), col(row.size());
        for (std::int64_t i = first; i < last; ++i) {
            load(a, i * k, rule.types.a, rule.unit_a, row);
            load(b, i * k, rule.types.b, rule.unit_b, col);
            const std::uint64_t start = c == nullptr ? 0 : c->format() == rule.types.c ? c->get(i) : convert(c->format(), rule.types.c, c->get(i));
            d.set(i, dot_walk(rule, instruction.shape.k, row, col, start));
        }
    });
    OpResult result;
    result.out[""] = std::move(d);
    return result;
}

}  // namespace bitreplay
