#include "emu/scratch.hpp"

#include <mutex>
#include <new>
#include <vector>

namespace bitreplay::detail {
namespace {

constexpr std::size_t header = 64, kept_limit = std::size_t{64} << 20;
constexpr std::size_t least_kept = std::size_t{64} << 10;  // smaller blocks cost no fresh pages
constexpr std::align_val_t alignment{64};

struct Pool {
    std::mutex mutex;
    std::vector<void*> free;  // sizes stand in the headers
    std::size_t kept = 0;
};

Pool& pool() {
    static Pool* const instance = new Pool;  // outlives every static that may still hold a buffer
    return *instance;
}

std::size_t& size_of(void* block) noexcept { return *static_cast<std::size_t*>(block); }

}  // namespace

void* acquire_scratch(std::size_t bytes) {
    Pool& p = pool();
    if (bytes >= least_kept) {
        const std::lock_guard lock(p.mutex);
        std::size_t best = p.free.size();
        for (std::size_t i = 0; i < p.free.size(); ++i) {
            const std::size_t size = size_of(p.free[i]);
            if (size >= bytes && size / 4 <= bytes && (best == p.free.size() || size < size_of(p.free[best]))) best = i;
        }
        if (best != p.free.size()) {
            void* const block = p.free[best];
            p.free[best] = p.free.back();
            p.free.pop_back();
            p.kept -= size_of(block);
            return static_cast<std::byte*>(block) + header;
        }
    }
    void* const block = ::operator new(bytes + header, alignment);
    size_of(block) = bytes;
    return static_cast<std::byte*>(block) + header;
}

void release_scratch(void* data) noexcept {
    if (data == nullptr) return;
    void* const block = static_cast<std::byte*>(data) - header;
    Pool& p = pool();
    if (size_of(block) >= least_kept) {
        const std::lock_guard lock(p.mutex);
        if (p.kept + size_of(block) <= kept_limit && p.free.size() < 256) {
            try {
                p.free.push_back(block);
                p.kept += size_of(block);
                return;
            } catch (const std::bad_alloc&) {  // then it is freed
            }
        }
    }
    ::operator delete(block, alignment);
}

}  // namespace bitreplay::detail
