"""Who may import whom: upward and foreign imports fail here, lazy ones and those for type checking included."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import lnexp

ROOT = Path(lnexp.__file__).parent
MODULES = {".".join(p.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): p for p in ROOT.rglob("*.py")}
MOST_LINES = 300

# The parts around Hydra, which may import all others. A part named neither here nor below (train, evaluate, ...) may
# import all but these.
TOP = {"__main__", "cli", "doctor", "launch", "reference", "show", "survey", "sweep"}
# Module or package -> the parts of lnexp it may import.
INSIDE = {
    "errors": set(),
    "paper": set(),
    "claims": {"paper"},
    "unstated": {"paper"},
    "schedule": set(),
    "config": {"schedule", "errors"},
    "files": set(),
    "rundir": {"files", "errors"},
    "signals": set(),
    "parent": {"signals"},
    "guard": {"rundir", "errors"},
    "memory": set(),
    "timing": {"memory", "rundir"},
    "check": {"config", "schedule", "scale", "errors"},
    "scale": {"config", "errors"},
    "score": {"errors"},
    "data": {"data", "config", "rundir", "files", "errors"},
    "track": {"track", "config", "rundir", "errors"},
    "probe": {"config", "rundir", "errors"},
    "meanfield": set(),
    "theory": set(),
    "statement": set(),
    "lemmas": {"meanfield", "theory", "statement"},
    "backend": {"backend", "config", "schedule", "files", "errors", "data", "probe", "timing"},
    "report": {"report", "config", "rundir", "files", "schedule", "paper", "claims", "unstated", "errors"},
    "console": {"rundir", "errors"},
}
# What may be imported beside the standard library.
OUTSIDE: dict[str, set[str]] = {
    "errors": set(),
    "paper": set(),
    "claims": set(),
    "unstated": set(),
    "schedule": set(),
    "rundir": set(),
    "config": {"yaml", "omegaconf"},
    "meanfield": set(),
    "report": {"yaml", "matplotlib"},
}
# Libraries that live in one place: library -> the only parts that may import it.
HOME = {
    "fairseq": {"backend"},
    "hydra": {"launch"},
    "omegaconf": {"config", "launch", "backend"},
    "wandb": {"track"},
    "sacrebleu": {"score"},
    "sacremoses": {"data"},
    "subword_nmt": {"data"},
    "torch": {"backend", "probe", "theory", "statement", "lemmas", "doctor"},
    "matplotlib": {"report"},
    "numpy": {"data", "backend", "probe", "theory"},
}


def imported(module: str, source: str) -> Iterator[tuple[int, str]]:
    """Give (line, dotted name) of every import; of `from lnexp.x import y` both x and x.y."""
    package = module if MODULES.get(module, Path()).name == "__init__.py" else module.rpartition(".")[0]
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                parts = ["lnexp", *filter(None, package.split("."))]
                base = ".".join([*parts[: len(parts) - node.level + 1], *filter(None, [base])])
            if base != "lnexp":
                yield node.lineno, base
            else:  # `from lnexp import config`; names that are no module (__version__) do not count
                yield from ((node.lineno, f"lnexp.{a.name}") for a in node.names if a.name in MODULES)


def faults(module: str, source: str) -> list[str]:
    """Give a line for each import that `module` may not have."""
    part = module.partition(".")[0]
    found = []
    for line, name in imported(module, source):
        top, _, rest = name.partition(".")
        if top == "lnexp":
            other = rest.partition(".")[0]
            wrong = other not in INSIDE[part] if part in INSIDE else part not in TOP and other in TOP
        else:
            wrong = part not in HOME.get(top, {part})
            wrong |= part in OUTSIDE and top not in OUTSIDE[part] and top not in sys.stdlib_module_names
        if wrong:
            found.append(f"{module}:{line} imports {name}")
    return found


@pytest.mark.parametrize("module", MODULES)
def test_no_import_upward_or_foreign(module: str) -> None:
    assert faults(module, MODULES[module].read_text(encoding="utf-8")) == []


@pytest.mark.parametrize("module", MODULES)
def test_no_module_is_too_long(module: str) -> None:
    assert len(MODULES[module].read_text(encoding="utf-8").splitlines()) <= MOST_LINES


PLANTED = [
    ("schedule", "import torch", "torch"),
    ("schedule", "from lnexp.errors import UserError", "lnexp.errors"),
    ("paper", "import yaml", "yaml"),
    ("claims", "from lnexp.config import Run", "lnexp.config"),
    ("report.judge", "from lnexp.score import Sentences", "lnexp.score"),
    ("config", "from lnexp import rundir", "lnexp.rundir"),
    ("config", "def f():\n    import hydra.utils", "hydra.utils"),
    ("rundir", "from lnexp.config import Run", "lnexp.config"),
    ("score", "from lnexp.data import text", "lnexp.data"),
    ("data.text", "from lnexp.score import sacrebleu", "lnexp.score"),
    ("data.text", "from ..track import sink", "lnexp.track"),
    ("track.sink", "from lnexp.data.prepare import Prepared", "lnexp.data.prepare"),
    ("backend.model", "from lnexp.rundir import Row", "lnexp.rundir"),
    ("backend", "from lnexp.train import train", "lnexp.train"),
    ("train", "from fairseq.trainer import Trainer", "fairseq.trainer"),
    ("train", "if TYPE_CHECKING:\n    import torch", "torch"),
    ("train", "import wandb", "wandb"),
    ("evaluate", "from sacrebleu.metrics import BLEU", "sacrebleu.metrics"),
    ("evaluate", "from .launch import plan", "lnexp.launch"),
    ("train", "def f():\n    from lnexp import cli", "lnexp.cli"),
    ("cli", "import hydra", "hydra"),
    ("show", "from omegaconf import OmegaConf", "omegaconf"),
    ("report.table", "import numpy as np", "numpy"),
    ("lemmas", "from lnexp.probe import Batch", "lnexp.probe"),
    ("train", "import matplotlib", "matplotlib"),
    ("report.table", "import pandas", "pandas"),
    ("report.table", "from lnexp.data.prepare import Prepared", "lnexp.data.prepare"),
]


@pytest.mark.parametrize(("module", "source", "name"), PLANTED)
def test_the_check_finds_a_planted_fault(module: str, source: str, name: str) -> None:
    (fault,) = faults(module, source)
    assert fault.endswith(f"imports {name}")


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("config", "from lnexp import schedule, __version__"),
        ("data.build", "from lnexp.data import text\nimport numpy as np"),
        ("data", "from .text import tokenize"),
        ("report.table", "import json\nfrom . import markup\nfrom .markup import grid"),
        ("launch", "import hydra\nfrom lnexp.train import train"),
        ("cli", "from lnexp.launch import plan"),
    ],
)
def test_the_check_lets_legal_imports_be(module: str, source: str) -> None:
    assert faults(module, source) == []


def test_every_rule_is_about_something() -> None:
    parts = {module.partition(".")[0] for module in MODULES}
    assert TOP | set(INSIDE) | set(OUTSIDE) | set().union(*HOME.values()) <= parts
