#!/usr/bin/env python3
"""Copies the first tiles of captured instructions, to keep a small selection in the repository. Standard library only.

    python3 cut_tiles.py CAPTURES OUT [--outputs 512]

Every tensor of CAPTURES/*.safetensors is [tiles, rows, columns]; of each input class the first tiles with at least that
many outputs together are kept. Bytes are copied, never computed; the metadata says what was kept.
"""
import argparse
import json
import struct
from pathlib import Path


def cut(source, target, outputs):
    blob = source.read_bytes()
    size = struct.unpack("<Q", blob[:8])[0]
    entries, data = json.loads(blob[8:8 + size]), blob[8 + size:]
    meta = entries.pop("__metadata__")
    kept, pieces, offset = {}, [], 0
    for name, entry in sorted(entries.items(), key=lambda item: item[1]["data_offsets"]):
        rows, columns = entries[name[:-2] + ".d"]["shape"][1:]
        tiles = -(-outputs // (rows * columns))
        begin, end = entry["data_offsets"]
        piece = data[begin:begin + (end - begin) // entry["shape"][0] * tiles]
        pieces.append(piece)
        kept[name] = {"dtype": entry["dtype"], "shape": [tiles] + entry["shape"][1:],
                      "data_offsets": [offset, offset + len(piece)]}
        offset += len(piece)
    kept["__metadata__"] = {**meta, "kept": "the first tiles of each input class"}
    text = json.dumps(kept).encode()
    text += b" " * (-len(text) % 8)
    target.write_bytes(struct.pack("<Q", len(text)) + text + b"".join(pieces))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("captures", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--outputs", type=int, default=512)
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    for path in sorted(options.captures.glob("*.safetensors")):
        cut(path, options.out / path.name, options.outputs)


if __name__ == "__main__":
    main()
