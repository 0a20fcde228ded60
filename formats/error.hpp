#pragma once

#include <new>
#include <stdexcept>
#include <string>

namespace bitreplay {

/// Unreadable, malformed or inconsistent input. The message is one line "file: key: reason". The CLI exits 2.
class InputError : public std::runtime_error {
public:
    using std::runtime_error::runtime_error;
};

/// An InputError whose message begins with its file. Who catches an InputError to say where it arose leaves these
/// alone.
class FileError : public InputError {
public:
    using InputError::InputError;
};

/// Runs a function; what it throws then begins with the file and the place in it. FileErrors name theirs already.
template <class Function>
auto placed(const std::string& file, const std::string& place, const Function& function) {
    const auto error_of = [&](const std::string& what) {
        return FileError(file + ": " + (what.starts_with(place) ? what : place + ": " + what));
    };
    try {
        return function();
    } catch (const FileError&) {
        throw;
    } catch (const InputError& error) {
        throw error_of(error.what());
    } catch (const std::bad_alloc&) {
        throw error_of("out of memory");
    } catch (const std::length_error&) {  // of a vector
        throw error_of("out of memory");
    }
}

/// Well-formed input that asks for hardware or a kernel without a model. The CLI exits 3; nothing is guessed.
class NotModelled : public std::runtime_error {
public:
    using std::runtime_error::runtime_error;
};

}  // namespace bitreplay
