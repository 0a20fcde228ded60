#pragma once

#include <stdexcept>
#include <string>

namespace bitreplay {

/// Unreadable, malformed or inconsistent input. The message is one line "file: key: reason". The CLI exits 2.
class InputError : public std::runtime_error {
public:
    using std::runtime_error::runtime_error;
};

/// An InputError whose message begins with its file. Who catches an InputError to say where it arose leaves these alone.
class FileError : public InputError {
public:
    using InputError::InputError;
};

/// Well-formed input that asks for hardware or a kernel without a model. The CLI exits 3; nothing is guessed.
class NotModelled : public std::runtime_error {
public:
    using std::runtime_error::runtime_error;
};

}  // namespace bitreplay
