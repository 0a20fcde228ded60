#include <cstdio>
#include <emu/emu.hpp>

int main() {
    using namespace bitreplay;
    const DotRule& rule = find_gpu("h200").dot_rule(parse_instruction("mma.m16n8k16.f32.bf16.bf16.f32"));
    const Operand a[] = {decode_operand(bf16, bf16, 0x3FC0)}, b[] = {decode_operand(bf16, bf16, 0x4000)};
    const auto sum = static_cast<unsigned>(dot_add(rule, a, b, 0x3F800000));  // 1.5 * 2 + 1
    std::printf("%08x %s\n", sum, sha256_hex({}).c_str());
    return sum == 0x40800000 ? 0 : 1;
}
