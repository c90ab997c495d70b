"""The check for a GPU: what it says where there is none, its comparison of curves, its page."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2] / "scripts"))

import bench_figures as figures
import gpu_check

SCRIPTS = Path(gpu_check.__file__).parent
SHELL = SCRIPTS / "gpu_check.sh"


def test_without_a_device() -> None:
    done = subprocess.run(
        [sys.executable, str(SCRIPTS / "gpu_check.py")], env=os.environ | {"CUDA_VISIBLE_DEVICES": ""},
        capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 2 and len(done.stderr.splitlines()) == 1
    assert "no CUDA device" in done.stderr and "torch" in done.stderr


def test_without_an_environment(tmp_path: Path) -> None:
    (tmp_path / "scripts").mkdir()
    (tmp_path / "scripts" / "gpu_check.sh").write_text(SHELL.read_text())
    done = subprocess.run(["bash", "scripts/gpu_check.sh"], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 2 and "make venv" in done.stderr and len(done.stderr.splitlines()) == 1


def test_it_says_that_no_gpu_has_seen_it() -> None:
    assert "Not run on a GPU yet" in SHELL.read_text() and os.access(SHELL, os.X_OK)


def test_gap_of_curves() -> None:
    assert gpu_check.gap([5.0, 4.0, 3.0], [5.0, 4.5, 3.25]) == (0.5, 2)


def test_page() -> None:
    def side(seconds: float, **more: Any) -> dict[str, Any]:
        return {"seconds": [1.0, 1.0 + seconds], "cpu_seconds": [1.0, 1.5], "tokens": [9, 60], "losses": [9.0, 8.0],
                "threads": 1, "peak_mib": 700.0, "precision": "fp32", "cuda_peak_mib": 1234.0} | more  # fmt: skip

    sides = {"bf16": side(1.0, precision="bf16", syncs=0.4), "fairseq": side(3.0),
             "fairseq fp16": side(2.0, precision="fp16", tokens=[9, 61])}  # fmt: skip
    one = {"sides": sides, "peaks": {"fp32": 1e3, "bf16": 1e4, "fp16": 1e4}}
    report: dict[str, Any] = {
        "settings": {"device": "cuda", "size": "iwslt", "tokens": 4096, "updates": 1, "warmup": 1, "rounds": 2,
                     "threads": 1, "data": "toy"},
        "machine": {"processor": "P", "cores": 2, "mhz": [], "system": "S", "load_before": 0.0, "versions": {}},
        "device": "a GPU", "wall_s": 9.0, "command": "again", "rounds": [],
        "curve": {"cpu fp32": [9.0, 8.0], "cuda bf16": [9.0, 7.75]},
    }  # fmt: skip
    assert "| cuda bf16 | 9.0000 | 7.7500 | 0.2500 (2) |" in gpu_check.markdown(report)
    report |= {"rounds": [one], "summary": figures.summary([one], figures.Shape(1, 1, 2, 3, 5), [(4, 60)], 1)}
    page = gpu_check.markdown(report)
    row = next(line for line in page.splitlines() if line.startswith("| lnexp bf16"))
    assert "| 60 (60 to 60) | 3.00 (3.00 to 3.00) |" in row and row.endswith("| 1,234 | 700 | 0.4 | yes |")
    other = next(line for line in page.splitlines() if line.startswith("| fairseq fp16"))
    assert other.endswith("| - | **no** |") and "1.48" not in row


def test_every_line_but_cuda_runs_on_a_cpu(tmp_path: Path) -> None:
    words = "--device cpu --modes fp32 --size tiny --data toy_copy --tokens 200 --updates 1 --warmup 1 --rounds 1"
    command = [sys.executable, str(SCRIPTS / "gpu_check.py"), *words.split(), "--curve-updates", "2"]
    done = subprocess.run([*command, "--out", str(tmp_path / "out")], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    page = (tmp_path / "out" / "gpu_check.md").read_text()
    # The same seed on the same device: the same losses, to the bit.
    curve = [line for line in page.splitlines() if line.startswith("| cpu fp32")]
    assert len(curve) == 1 and "| 0.0000 (1) |" in curve[0]
    assert "| lnexp fp32 |" in page and "| fairseq fp32 |" in page and page in done.stdout
