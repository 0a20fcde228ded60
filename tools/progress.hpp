#pragma once

#include <chrono>
#include <string>

namespace bitreplay::tools {

/// A status line on stderr, only if that is a terminal and only once the work has taken two seconds.
class Progress {
public:
    Progress();
    ~Progress();
    void show(const std::string& line);

private:
    bool terminal_;
    bool shown_ = false;
    std::chrono::steady_clock::time_point start_;
};

}  // namespace bitreplay::tools
