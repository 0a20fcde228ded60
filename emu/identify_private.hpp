#pragma once
// Private: what the search for a kernel asks of each kind of op.

#include <functional>
#include <memory>
#include <span>

#include "emu/identify.hpp"
#include "reduction_trees/recipe.hpp"

namespace bitreplay::detail {

/// Something to try: the recorded request under another GPU, kernel and parameters. Equal keys: equal in effect.
struct Candidate {
    std::string key, effect;
    std::vector<CandidateName> names;
};

/// Candidates by key.
class CandidateList {
public:
    /// Adds a name to the candidate of this key (made if it is new). Per kernel the first name stays, with the GPUs of
    /// later ones that have the same parameters.
    void add(const std::string& key, const std::string& effect, CandidateName name);
    const std::vector<Candidate>& all() const noexcept { return list_; }
    std::int64_t named() const noexcept { return named_; }

private:
    std::vector<Candidate> list_;
    std::map<std::string, std::size_t> by_key_;
    std::int64_t named_ = 0;
};

struct Score {
    std::int64_t compared = 0, different = 0;
};

/// A kind of op in which a kernel can be searched.
class Search {
public:
    virtual ~Search() = default;
    virtual CandidateList candidates() = 0;
    /// The outputs that tell candidates apart best, in batches; few of them, for many candidates. Called from several
    /// threads. Batches are numbered from 0; no batch of that number: compared = 0.
    virtual Score telling(const CandidateName& name, std::size_t batch) = 0;
    /// How many candidates full() will be asked about.
    virtual void left(std::size_t) {}
    /// All outputs that are to be compared in the end.
    virtual Score full(const CandidateName& name) = 0;
};

/// Adds what can compute a matrix product x [M, K], w [N, K]: recipes and combinations of parameters on each kind of GPU
/// that has the instruction. None if nothing can.
void add_gemm_candidates(const OpRequest& request, const IdentifyOptions& options, CandidateList& list);

std::unique_ptr<Search> gemm_search(const RecordedOp& op, const IdentifyOptions& options);
std::unique_ptr<Search> attention_search(const RecordedOp& op, const IdentifyOptions& options);
std::unique_ptr<Search> row_search(const RecordedOp& op, const IdentifyOptions& options);

/// A request like the recorded one but for what ran: parameters of recipes and kernel names are left out.
OpRequest with_candidate(const OpRequest& request, const CandidateName& name);

/// GPUs that compute candidates alike, by the signature of what matters to the op.
std::vector<std::vector<std::string>> gpu_kinds(const IdentifyOptions& options,
                                                const std::function<std::string(const Gpu&)>& signature);

/// A parameter's value as JSON.
std::string json_of(const RecipeValue& value);

/// Steps of an instruction in one line: "L=16 F=25 rz keep 23".
std::string describe_steps(const DotRule& rule);

/// How a GPU launches the kernel of a row reduction, in one line: equal for GPUs that add in the same order.
std::string describe_launch(const Gpu& gpu, const OpRequest& request);

/// Compares the values at out[rows][:, cols] with what was recorded there.
Score score(const RecordedOutput& recorded, const Tensor& actual);

}  // namespace bitreplay::detail
