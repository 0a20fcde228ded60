"""Reads cuBLASLt's log (CUBLASLT_LOG_LEVEL=5, CUBLASLT_LOG_FILE=...). Standard library only."""
import re

_MATMUL = re.compile(r"\[(cublasLt\w*Matmul)\]")
_FIELD = {"algo": re.compile(r" algo=\[(.*?)\]"), "desc": re.compile(r" computeDesc=\[(.*?)\]")}
_NOISE = re.compile(r"MATMUL_(?=TILE|STAGES)|REDUCTION_SCHEME_|CLUSTER_SHAPE_| \w+Pointer=0x[0-9a-f]+")
_WORKSPACE = re.compile(r"workSpaceSizeInBytes=(\d+)")
_OUTPUT = re.compile(r" Ddesc=\[[^\]]*?rows=(\d+) cols=(\d+)")


def parse_log(text):
    """One entry for every matrix product that ran, in order: fn, algo, desc, ws (workspace bytes), and shape, the (M, N) of
    the row-major output, where the line tells it."""
    entries = []
    for line in text.splitlines():
        call = _MATMUL.search(line)
        if not call or " algo=[" not in line:
            continue
        entry = {"fn": call.group(1)}
        for name, pattern in _FIELD.items():
            found = pattern.search(line)
            entry[name] = _NOISE.sub("", found.group(1)) if found else ""
        found = _WORKSPACE.search(line)
        entry["ws"] = int(found.group(1)) if found else 0
        found = _OUTPUT.search(line)
        if found:  # the library's matrices are column-major
            entry["shape"] = [int(found.group(2)), int(found.group(1))]
        entries.append(entry)
    return entries


def split_k(entries):
    """SPLITK_NUM of the last matrix product in `entries`; 1 if the log names none, None if there is no entry."""
    if not entries:
        return None
    found = re.search(r"numSplitsK=(\d+)", entries[-1]["algo"])
    return int(found.group(1)) if found else 1


def log_line(entry):
    """The recorded fields as cuBLASLt prints them: what a manifest op's "cublaslt" holds. The workspace matters for segments only."""
    workspace = f" workSpaceSizeInBytes={entry['ws']}" if "numSplitsK=-1" in entry["algo"] and entry.get("ws") else ""
    return f"[{entry['fn']}] computeDesc=[{entry['desc'].strip()}] algo=[{entry['algo'].strip()}]{workspace}"
