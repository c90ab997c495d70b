"""A wheel carries everything: configs, corpus, page template; and the command works from it in any folder."""

import os
import subprocess
import sys
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_the_wheel_is_whole_and_works_anywhere(tmp_path):
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)], cwd=ROOT, check=True
    )
    wheel = next(tmp_path.glob("*.whl"))
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
        archive.extractall(tmp_path / "site")
    for path in [*(ROOT / "conf").rglob("*.yaml")]:
        assert f"lnexp/conf/{path.relative_to(ROOT / 'conf')}" in names
    for path in (ROOT / "lnexp").rglob("*"):
        if path.is_file() and "__pycache__" not in path.parts:
            assert f"lnexp/{path.relative_to(ROOT / 'lnexp')}" in names
    env = os.environ | {"PYTHONPATH": str(tmp_path / "site")}
    command = [sys.executable, "-c", "import sys, lnexp.cli, lnexp; print(lnexp.__file__); sys.exit(lnexp.cli.main())"]
    shown = subprocess.run([*command, "show", "sweep=demo"], cwd=tmp_path, env=env, capture_output=True, text=True)
    assert shown.returncode == 0, shown.stderr
    assert str(tmp_path / "site") in shown.stdout and "4 runs" in shown.stdout
    made = subprocess.run([*command, "prepare", "data=tatoeba_deen", "max_updates=1"],
                          cwd=tmp_path, env=env, capture_output=True, text=True)  # fmt: skip
    assert made.returncode == 0, made.stderr
    assert "vocabulary" in made.stdout
