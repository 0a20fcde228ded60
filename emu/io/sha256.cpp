#include "emu/io/sha256.hpp"

#include <openssl/evp.h>

#include <array>
#include <stdexcept>

namespace bitreplay {
namespace {
void check(bool ok) {
    if (!ok) throw std::runtime_error("SHA-256 failed in OpenSSL");
}
EVP_MD_CTX* context(const std::shared_ptr<void>& held) { return static_cast<EVP_MD_CTX*>(held.get()); }
}  // namespace

Sha256::Sha256() : context_(EVP_MD_CTX_new(), [](void* held) { EVP_MD_CTX_free(static_cast<EVP_MD_CTX*>(held)); }) {
    check(context_ != nullptr && EVP_DigestInit_ex(context(context_), EVP_sha256(), nullptr) == 1);
}

void Sha256::update(std::span<const std::byte> bytes) {
    check(EVP_DigestUpdate(context(context_), bytes.data(), bytes.size()) == 1);
}

std::string Sha256::hex() {
    std::array<unsigned char, EVP_MAX_MD_SIZE> digest{};
    unsigned length = 0;
    check(EVP_DigestFinal_ex(context(context_), digest.data(), &length) == 1);
    std::string out;
    for (unsigned i = 0; i < length; ++i) {
        out += "0123456789abcdef"[digest[i] >> 4];
        out += "0123456789abcdef"[digest[i] & 15];
    }
    return out;
}

std::string sha256_hex(std::span<const std::byte> bytes) {
    Sha256 sum;
    sum.update(bytes);
    return sum.hex();
}

}  // namespace bitreplay
