"""Smoke test of the capture scripts without a GPU: every script compiles, and those that only rewrite captures still write the
manifests that are committed."""
import filecmp
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LAYERS = ROOT / "testdata/h200/layers"
STORY = ROOT / "testdata/h200/story"


def main():
    scripts = sorted((ROOT / "tools").glob("*/*.py"))
    assert len(scripts) >= 10, scripts
    for script in scripts:
        compile(script.read_text(), str(script), "exec")
    compared = 0
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder)
        subprocess.run([sys.executable, "-B", ROOT / "tools/capture/make_manifests.py", "layers", LAYERS / "capture", out], check=True)
        for committed in LAYERS.glob("*.json"):
            written = out / committed.name.replace(".open.json", ".json")  # named so where the replay is refused
            assert filecmp.cmp(committed, written, shallow=False), committed
            compared += 1
        story = out / "testdata/h200/story"
        story.mkdir(parents=True)
        (story.parent / "linear").symlink_to(ROOT / "testdata/h200/linear")
        subprocess.run([sys.executable, "-B", ROOT / "tools/manifests/make_story.py", story.parent / "linear/capture",
                        ROOT / "testdata/h200/gemm/relog.json", story], check=True)
        for committed in STORY.iterdir():
            assert filecmp.cmp(committed, story / committed.name, shallow=False), committed
            compared += 1
    assert compared >= 20, compared
    print(f"{len(scripts)} scripts compile, {compared} files are written as committed")


if __name__ == "__main__":
    main()
