#pragma once

#include <catch2/catch.hpp>
#include <functional>

#include "emu/identify.hpp"
#include "test/support/sweep_hash.hpp"

namespace bitreplay::test {

struct Identified {
    int cases = 0;
    int settled = 0;  ///< in which everything that was found has the logged split, and no slices
};

/// Identifies recorded matrix products of H200. The split that cuBLASLt logged must be found, as the recipe of the
/// recorded kernel, on that GPU; and everything that is found must reproduce every recorded output.
inline Identified check_identified(const IdentifyOptions& options, const std::function<bool(std::size_t)>& wanted) {
    const Manifest manifest = load_manifest(testdata() / "h200/linear/gemm.json");
    std::map<std::string, std::int64_t> logged;
    for (const auto& entry : read_json(testdata() / "h200/gemm/relog.json"))
        logged[entry.at("case")] = entry.at("split_k");
    Identified out;
    for (std::size_t i = 0; i < manifest.ops.size(); ++i) {
        if (!wanted(i)) continue;
        const std::string& id = manifest.ops[i].id;
        const bool fast =
            id.empty() ? false : manifest.ops[i].params.json().find("\"fast_accum\":1") != std::string::npos;
        const IdentifyReport report = identify(recorded_op(manifest, id), options);
        INFO(id << ": " << report.found.size() << " found");
        REQUIRE(logged.contains(id));
        REQUIRE_FALSE(report.found.empty());
        int right = 0;
        bool settled = true;
        for (const CandidateGroup& group : report.found) {
            CHECK(group.different == 0);
            // Many that are left share the time: then a part of the outputs is compared.
            CHECK(group.compared >= std::min<std::int64_t>(512, report.recorded));
            for (const CandidateName& name : group.names) {
                const nlohmann::json any = nlohmann::json::parse(name.params);
                settled = settled && any.value("split_k", std::int64_t{1}) == logged[id] && !any.contains("slices");
                if (name.kernel != "cublas.nvjet" ||
                    std::find(name.gpus.begin(), name.gpus.end(), "h200") == name.gpus.end())
                    continue;
                const bool same = any.value("split_k", std::int64_t{1}) == logged[id] &&
                                  any.value("fast_accum", 0) == (fast ? 1 : 0) && !any.contains("tile_k");
                right += same ? 1 : 0;
            }
        }
        CHECK(right == 1);
        CHECK(report.separation > 0);
        ++out.cases;
        out.settled += settled ? 1 : 0;
    }
    return out;
}

}  // namespace bitreplay::test
