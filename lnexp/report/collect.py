"""Run folders in, typed results out.

In: a run folder, a sweep folder, or a sweep's name under outputs/. Out: one Result a run, asked for or found.
The only reader of run folders in the reports, so that table, status and dashboard cannot disagree about a run.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from lnexp import rundir
from lnexp.config import Run
from lnexp.errors import UserError
from lnexp.report import damage
from lnexp.report.damage import Score as Score
from lnexp.report.frozen import read_config
from lnexp.report.live import validations

DAMAGED, PROBED, MISSING = "damaged", "probed", "missing"
NOT_BEGUN = (PROBED, MISSING)
"""States without a training: what was only probed, and what a sweep asked for."""
# Every state a report knows, in the order in which it lists them.
STATES = ("done", "running", "diverged", "failed", "interrupted", DAMAGED, PROBED, MISSING)
_DEPTH = 2  # outputs/ itself -> sweep -> run

Flat = dict[str, Any]


@dataclass
class Result:
    """What is known of one run."""

    folder: Path
    state: str
    config: dict[str, Any] = field(default_factory=dict)
    """Nested, as in config.yaml; empty where the run is missing."""
    updates: int = 0
    wall_s: float = 0.0
    reason: str | None = None
    scores: list[Score] = field(default_factory=list)
    env: dict[str, Any] = field(default_factory=dict)
    overrides: tuple[str, ...] = ()
    """What the launcher was asked for, where it wrote that down."""

    @property
    def name(self) -> str:
        return self.folder.name

    @property
    def seed(self) -> int | None:
        return self.config.get("seed")

    @cached_property
    def flat(self) -> Flat:
        """{"group.field": value}; a field younger than the run has its neutral value, as config.py promises."""
        return {**NEUTRAL, **flatten(self.config)} if self.config else {}

    @cached_property
    def rows(self) -> list[rundir.Row]:
        """metrics.jsonl, read when first asked for."""
        return self._read_rows(lambda folder: [r for r in rundir.rows(folder) if isinstance(r.get("updates"), int)])

    @cached_property
    def timing(self) -> dict[str, Any]:
        """timing.json, read when first asked for; empty where there is none."""
        found: dict[str, Any] = _read_optional(self.folder / "timing.json", dict)
        return found

    @cached_property
    def _validations(self) -> list[rundir.Row]:
        """The rows of validations alone: a table of 1,000 long runs has no time for the others."""
        if "rows" in vars(self):
            return [row for row in self.rows if row.get("split") == "valid"]
        return self._read_rows(validations)

    def _read_rows(self, read: Callable[[Path], list[rundir.Row]]) -> list[rundir.Row]:
        try:
            return read(self.folder)
        except (ValueError, AttributeError, OSError) as error:
            if isinstance(error, ValueError):
                list(rundir.rows(self.folder))  # names the line
            raise UserError(f"{self.folder / 'metrics.jsonl'}: cannot be read as rows of JSON ({error})") from None

    def forgive(self, rows: str = "rows") -> Result:
        """Read rows and timing now; where one cannot be read the run is damaged, and a damaged run keeps no number."""
        for name in (rows, "timing"):
            try:
                getattr(self, name)
            except UserError as error:
                self.state, self.reason = DAMAGED, str(error)
        ended = self.updates if self.state == "done" else None
        if self.state != DAMAGED and (fault := damage.fault_of(self._validations, ended)):
            self.state, self.reason = DAMAGED, f"{self.folder / 'metrics.jsonl'}: {fault}; {damage.MEND}"
        if self.state == DAMAGED:
            self.scores = []
            self.__dict__ |= {"rows": [], "_validations": [], "timing": {}}
        return self

    def series(self, split: str, name: str) -> list[tuple[int, float]]:
        """Give (updates, value) for every row of a split that has this field as a number."""
        rows = self._validations if split == "valid" else self.rows
        found = ((row["updates"], row.get(name)) for row in rows if row.get("split") == split)
        return [(u, float(v)) for u, v in found if isinstance(v, int | float)]


def flatten(value: Mapping[str, Any], prefix: str = "") -> Flat:
    """Give nested mappings as {"a.b": leaf}."""
    flat: Flat = {}
    for key, item in value.items():
        if isinstance(item, Mapping):
            flat.update(flatten(item, f"{prefix}{key}."))
        else:
            flat[f"{prefix}{key}"] = item
    return flat


def nested(flat: Flat) -> dict[str, Any]:
    """The way back from `flatten`."""
    tree: dict[str, Any] = {}
    for name, value in flat.items():
        *path, leaf = name.split(".")
        place = tree
        for part in path:
            place = place.setdefault(part, {})
        place[leaf] = value
    return tree


NEUTRAL = flatten(asdict(Run()))
"""Every field of a run with its neutral value, flat."""


def find(path: Path | str, outputs: Path | str = "outputs") -> Path:
    """Give the folder that PATH means: a folder as it stands, else a sweep of that name under outputs/."""
    path, named = Path(path), Path(outputs) / path
    folder = path if path.is_dir() else named
    if not folder.is_dir():
        place = "not a folder" if path.exists() else "no such folder"
        known = sorted(p.name for p in _subfolders(Path(outputs)))[:8]
        hint = f"{outputs}/ has {', '.join(known)}" if known else f"nothing lies under {outputs}/ yet"
        raise UserError(f"{path}: {place}; {hint}")
    if not _run_folders(folder, _DEPTH) and not list(_sweep_files(folder)):
        raise UserError(f"{path}: no runs here (no config.yaml below it)")
    return folder


def collect(path: Path | str, strict: bool = True, outputs: Path | str = "outputs") -> list[Result]:
    """Read every run at PATH, and add those that sweep.json asked for and that are not there.

    A damaged file makes a result of state "damaged" whose reason names it. With `strict` all that a table reads is
    read now, so that such a run has no number in it, and UserError is raised where no run is left; strict=False reads
    what says how a run stands, and is quick.
    """
    folder = find(path, outputs)
    wanted: dict[Path, tuple[str, ...]] = {}
    spoilt = []
    for file in _sweep_files(folder):
        try:
            wanted.update(_wanted(file))
        except UserError as error:
            spoilt.append(Result(file, DAMAGED, reason=str(error)))
    begun = dict.fromkeys(_run_folders(folder, _DEPTH))
    results = [_read(run, wanted.get(run, ())) for run in begun]
    if strict:
        damaged = [result for result in results if result.forgive("_validations").state == DAMAGED]
        if damaged and len(damaged) == len(results):
            raise UserError(str(damaged[0].reason))
    results += [
        Result(run, MISSING, reason="not begun", overrides=overrides)
        for run, overrides in sorted(wanted.items())
        if run not in begun
    ]
    return results + spoilt


def _subfolders(folder: Path) -> list[Path]:
    try:
        with os.scandir(folder) as entries:
            return [Path(e.path) for e in sorted(entries, key=lambda e: e.name) if e.is_dir() and e.name[0] != "."]
    except OSError:
        return []


def _run_folders(folder: Path, depth: int) -> list[Path]:
    if any((folder / name).is_file() for name in ("config.yaml", "status.json")):
        return [folder]
    return [run for sub in _subfolders(folder) for run in _run_folders(sub, depth - 1)] if depth else []


def _sweep_files(folder: Path) -> list[Path]:
    places = [folder, *_subfolders(folder)] if not (folder / "config.yaml").is_file() else []
    return [place / "sweep.json" for place in places if (place / "sweep.json").is_file()]


def _wanted(file: Path) -> dict[Path, tuple[str, ...]]:
    """Read sweep.json, the launcher's list of what was asked for: run folder -> overrides."""
    content = rundir.read_json(file)
    try:
        return {
            file.parent / Path(w["folder"]).name: tuple(map(str, w.get("overrides", ()))) for w in content["wanted"]
        }
    except (TypeError, KeyError, AttributeError):
        raise UserError(f'{file}: need {{"sweep": ..., "wanted": [{{"folder": ..., "overrides": [...]}}]}}') from None


def _read(folder: Path, overrides: tuple[str, ...]) -> Result:
    result = Result(folder, DAMAGED, overrides=overrides)
    try:
        result.config = read_config(folder / "config.yaml")
        status = rundir.read_status(folder)
        if status is None:
            if (folder / "metrics.jsonl").is_file():
                mend = "the command that trained it goes on and writes it, or put it back"
                raise UserError(f"{folder / 'status.json'}: is missing beside metrics.jsonl; {mend}")
            probed = (folder / "probe.json").is_file()
            untrained, result.reason = (PROBED, None) if probed else (MISSING, "not begun")
        else:
            # Everything is read before the state is set: a run with one damaged file is damaged, not half done.
            result.updates, wall_s = damage.counts(status, folder / "status.json")
            result.wall_s = wall_s if math.isfinite(wall_s) else 0.0
            result.reason = status.get("reason")
        result.env = _read_optional(folder / "env.json", dict)
        if isinstance(data := result.env.get("data_folder"), str):  # kept results have ~ in place of a home
            result.env["data_folder"] = str(Path(data).expanduser())
        result.scores = [damage.score(s, folder / "scores.json") for s in _read_optional(folder / "scores.json", list)]
        if status and status["state"] == "done":
            damage.expect_whole(folder, result.scores)
        result.state = status["state"] if status else untrained
    except (UserError, ValueError, TypeError) as error:
        named = isinstance(error, UserError)
        result.state, result.reason = DAMAGED, str(error) if named else f"{folder / 'status.json'}: {error}"
    return result


def _read_optional(path: Path, kind: type) -> Any:
    if not path.exists():
        return kind()
    content = rundir.read_json(path)
    _expect(content, path, kind)
    return content


def _expect(content: Any, path: Path, kind: type) -> None:
    if not isinstance(content, kind):
        raise UserError(f"{path}: need a {'mapping' if kind is dict else 'list'}, found {type(content).__name__}")
