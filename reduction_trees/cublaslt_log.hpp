#pragma once

#include <map>
#include <string>
#include <string_view>

namespace bitreplay {

/// What cuBLASLt logged of one matrix product, by field: algoId, tile, stages, numSplitsK, reductionScheme,
/// customOption, clusterShape, ... of `algo=[...]` and computeType, epilogue, fastAccumulationFlag, ... of
/// `computeDesc=[...]`; types: the letters in the name of the call, TST of [cublasLtTSTMatmul]. A field that the library
/// leaves out (no split, option 0) is absent.
using CublasLtFields = std::map<std::string, std::string>;

/// Reads one line of the log (CUBLASLT_LOG_LEVEL=5): a whole line, or only the fields ("algoId=66 tile=TILE_64x16
/// ..."), with or without the prefixes of the enumerations ("MATMUL_TILE_64x16"), in the log's spelling or in that of
/// the attributes (ALGO_ID, SPLITK_NUM; the numbers of REDUCTION_SCHEME become its words). The spellings are data:
/// recipes/cublaslt_log.json. InputError if there is no algoId or if a field has two values.
CublasLtFields parse_cublaslt_log(std::string_view line);

/// What a logged product does to its accumulators.
struct LogEpilogue {
    bool bias = false, gelu = false, relu = false;
};
/// The epilogue of a log; none if the log names none. NotModelled for one that the data do not list.
LogEpilogue log_epilogue(const CublasLtFields& fields);

}  // namespace bitreplay
