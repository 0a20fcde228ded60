#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "formats/format.hpp"
#include "formats/round.hpp"

namespace bitreplay {

/// How a fact about a GPU is known.
struct Evidence {
    enum class Level : std::uint8_t {
        measured,    ///< equal to outputs of this GPU that the test suite compares, named in source
        published,   ///< reported equal to published data of this GPU that the test suite does not hold
        unverified,  ///< inferred from a relative of this GPU, or from one paper; no output was compared
    };
    Level level;
    std::string source;
};
std::string_view to_string(Evidence::Level level) noexcept;

/// One step of a dot-product instruction.
struct DotStep {
    enum class Kind : std::uint8_t {
        fused_dot,  ///< T-FDPA over the selected products, at most `block` at a time
        add_c,      ///< one ordinary IEEE addition of the instruction's c
        fma_chain,  ///< IEEE fused multiply-adds in k order, starting from c
    };
    enum class Select : std::uint8_t { all, low_pairs, high_pairs };  ///< every k; k mod 4 < 2; k mod 4 >= 2
    enum class From : std::uint8_t { c, zero, last };                 ///< what the step's first accumulator is

    Kind kind = Kind::fused_dot;
    Select select = Select::all;
    From from = From::c;
    int block = 0;       ///< products summed together (L in the T-FDPA papers)
    int align_bits = 0;  ///< fraction bits kept below the largest exponent (F)
    int keep = 0;        ///< fraction bits of the rounded result
    Rounding rounding = Rounding::toward_zero;

    bool operator==(const DotStep&) const = default;
};

/// An instruction shape; n = 0 stands for every multiple of 8 up to 256 (wgmma).
struct Shape {
    int m, n, k;
    bool operator==(const Shape&) const = default;
};

/// The operand types of an instruction: d[m,n] = a[m,k] b[k,n] + c[m,n].
struct DotTypes {
    Format d, a, b, c;
    bool operator==(const DotTypes&) const = default;
};

/// A tensor-core instruction, spelled family.mMnNkK.d.a.b[.c] with PTX type names.
struct Instruction {
    std::string family;  ///< mma, wgmma, tcgen05
    Shape shape;
    DotTypes types;
};

/// Reads "mma.m16n8k16.f32.bf16.bf16.f32" or "wgmma.m64n8k16.f32.bf16.bf16" (c as d). Throws InputError.
Instruction parse_instruction(std::string_view text);
std::string to_string(const Instruction& instruction);

/// The arithmetic of a family of instructions that share operand types.
struct DotRule {
    std::string family;
    std::vector<Shape> shapes;
    DotTypes types;
    Format unit_a, unit_b;  ///< formats in which the unit multiplies; a and b convert to them exactly
    std::vector<DotStep> steps;
    Evidence evidence;
};

/// Facts about a special-function unit, see arch/mufu.hpp.
struct MufuFacts {
    std::string table;  ///< name of a file in arch/mufu
    Evidence evidence;
};

/// One GPU model: pure data, from one JSON file.
struct Gpu {
    std::string name;   ///< as in manifests: h200
    std::string title;  ///< as the driver prints it: NVIDIA H200
    std::vector<std::string> aliases;
    int sm = 0;  ///< compute capability times ten
    int multiprocessors = 0;
    int threads_per_multiprocessor = 0;
    std::vector<DotRule> dot;
    std::optional<MufuFacts> mufu;  ///< none: not modelled

    /// The rule of an instruction; throws NotModelled naming both.
    const DotRule& dot_rule(const Instruction& instruction) const;
    /// The rule for these types in a family whatever the shape, or nullptr.
    const DotRule* find_dot_rule(std::string_view family, const DotTypes& types, int k) const noexcept;
};

/// Names of all built-in GPUs, sorted.
std::vector<std::string> gpu_names();
/// A built-in GPU by name or alias, any case ("sm_80" style names are aliases).
/// A path to a .json file loads that file. Throws NotModelled for unknown
/// names, InputError for malformed files.
const Gpu& find_gpu(std::string_view name);
Gpu load_gpu_file(const std::filesystem::path& path);
/// The JSON text of a built-in GPU.
std::string_view gpu_json(std::string_view name);

}  // namespace bitreplay
