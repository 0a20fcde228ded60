#pragma once

#include <cstddef>
#include <span>
#include <type_traits>

namespace bitreplay {

/// Uninitialised memory for repeated use: a freed block is kept (64 MiB in all, at most) for the next buffer, because
/// fresh pages of a large allocation cost as much as a few per cent of the product that fills them. Thread-safe.
template <class T>
class Scratch {
    static_assert(std::is_trivially_copyable_v<T>);

public:
    Scratch() = default;
    explicit Scratch(std::size_t count);
    Scratch(Scratch&& other) noexcept : data_(other.data_), count_(other.count_) {
        other.data_ = nullptr;
        other.count_ = 0;
    }
    Scratch& operator=(Scratch&& other) noexcept {
        T* const data = data_;
        data_ = other.data_;
        other.data_ = data;
        const std::size_t count = count_;
        count_ = other.count_;
        other.count_ = count;
        return *this;
    }
    ~Scratch();

    T* data() noexcept { return data_; }
    const T* data() const noexcept { return data_; }
    std::size_t size() const noexcept { return count_; }
    T& operator[](std::size_t i) noexcept { return data_[i]; }
    const T& operator[](std::size_t i) const noexcept { return data_[i]; }

private:
    T* data_ = nullptr;
    std::size_t count_ = 0;
};

namespace detail {
/// A block of at least `bytes`, aligned to 64; release() takes what acquire() gave.
void* acquire_scratch(std::size_t bytes);
void release_scratch(void* block) noexcept;
}  // namespace detail

template <class T>
Scratch<T>::Scratch(std::size_t count)
    : data_(static_cast<T*>(detail::acquire_scratch(count * sizeof(T)))), count_(count) {}
template <class T>
Scratch<T>::~Scratch() {
    detail::release_scratch(data_);
}

}  // namespace bitreplay
