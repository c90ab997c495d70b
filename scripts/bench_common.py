"""What the benchmarks share: arguments, modes, the order of the sides, child processes, the machine, written results.

Standard library only until something is run: in a Python without the packages the one line that says so still comes.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import platform
import re
import subprocess
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict, is_dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

if TYPE_CHECKING:
    from lnexp.config import Run

CPU_MODES = ("fp32", "fp32_fast", "bf16")
"""What devices.precision may be on a CPU, from the reference to the fastest."""
STOCK = "fairseq"
BUSY = 0.5
"""A load above this before the first run means that the figures are of a shared machine."""
STOLEN = 0.02
"""A share of CPU time above this that the host took for other guests is worth a note."""


class Failed(Exception):
    """A run did not come to its end."""


class Parser(argparse.ArgumentParser):
    """Says what is wrong with its arguments in one line."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: {message} (--help says more)\n")


def run_main(name: str, parser: argparse.ArgumentParser, work: Callable[[argparse.Namespace], int],
             words: list[str] | None) -> int:  # fmt: skip
    """Parse, run and turn what can go wrong into one line: 2 wrong input, 1 a run failed, 130 stopped."""
    options = parser.parse_args(words)
    missing = [m for m in ("torch", "fairseq", "fairseq_cli", "lnexp") if importlib.util.find_spec(m) is None]
    if missing:
        return complain(name, f"{', '.join(missing)} not installed for {sys.executable}: run `make venv`", 2)
    from lnexp.errors import UserError

    try:
        return work(options)
    except UserError as error:
        return complain(name, str(error), 2)
    except OSError as error:
        where = error.filename or "writing"
        return complain(name, f"{where}: {error.strerror}; --out DIR needs a folder that can be written", 2)
    except Failed as error:
        return complain(name, str(error), 1)
    except KeyboardInterrupt:
        return 130


def complain(name: str, line: str, code: int) -> int:
    print(f"{name}: {line}", file=sys.stderr)
    return code


def count(word: str) -> int:
    """Read an argument that must be a whole number of at least 1."""
    if not word.isdigit() or int(word) < 1:
        raise argparse.ArgumentTypeError(f"{word}: need a whole number >= 1")
    return int(word)


def names(word: str) -> list[str]:
    """Read a list of modes: fp32,bf16."""
    found = word.split(",")
    if not all(found) or len(set(found)) < len(found) or STOCK in found:
        raise argparse.ArgumentTypeError(f"{word}: need values of devices.precision, each once, between commas")
    return found


def training_words(options: argparse.Namespace, threads: int) -> list[str]:
    """Say the run of our side in lnexp's words. The rate is constant, as stock fairseq has that too."""
    words = [f"data={options.data}"] if options.data else ["data=tatoeba_deen", "data.bpe_merges=10000"]
    if options.local:
        named = re.sub(r"[^A-Za-z0-9._+-]+", "-", options.local.resolve().name).strip("-._+") or "local"
        path = str(options.local.resolve()).replace("\\", "\\\\").replace("'", "\\'")
        words += [f"data.name={named[:100]}"]
        words += [f"data.{split}='{path}/{split}'" for split in ("train", "valid", "test")]
    words += [f"size={options.size}", f"model={options.model}", f"tokens_per_update={options.tokens}"]
    words += ["optim=adam", "optim.lr=1e-4", "schedule=constant", "track=none", "max_updates=1000000"]
    return [*words, f"devices.threads={threads}"]


def compose(words: list[str], mode: str = "") -> Run:
    """Give the one run that `words` mean, in that precision."""
    from lnexp import launch

    return launch.plan(words + ([f"devices.precision={mode}"] if mode else [])).jobs[0].run


def chosen_modes(named: Sequence[str] | None, make: Callable[[str], Any], device: str = "cpu") -> list[str]:
    """Give the modes to measure: those named, else all that this version has on a CPU. `make` composes a run in a
    mode; UserError where a named one, or fp32, cannot be."""
    import torch

    from lnexp.backend.precision import resolve
    from lnexp.errors import UserError

    if named:
        for mode in named:
            make(mode)
            resolve(mode, torch.device(device))
        return list(named)
    make("fp32")
    found = ["fp32"]
    for mode in CPU_MODES[1:]:
        with suppress(UserError):
            make(mode)
            found.append(mode)
    return found


def order(sides: Sequence[str], number: int) -> list[str]:
    """Give the order of the sides in round `number` (from 0), by Williams' square.

    In as many rounds as there are sides (twice as many where that is odd) each side has had each place, and each other
    side before it, equally often; so no side always runs on a chip that the same neighbour has warmed.
    """
    n = len(sides)
    first = [(n - i // 2) % n if i % 2 == 0 else i // 2 + 1 for i in range(n)]
    row = [sides[(place + number) % n] for place in first]
    return row[::-1] if n % 2 and number % 2 else row


def child(script: Path, work: Path, job: dict[str, Any], threads: int, cuda: bool = False) -> dict[str, Any]:
    """Run `script` on a job in a process of its own, to its end; give what it noted.

    The folder `work` carries the job there (job.json) and the result back (result.json).
    """
    environment = os.environ | {
        "OMP_NUM_THREADS": str(threads),
        "MKL_NUM_THREADS": str(threads),
        "TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD": "1",  # without it stock fairseq cannot read its own checkpoints
    }
    if not cuda:
        environment["CUDA_VISIBLE_DEVICES"] = ""
    name = f"{job['program']} {job.get('mode', '')}".strip()
    result, log = work / "result.json", work / f"{name.replace(' ', '-')}.log"
    result.unlink(missing_ok=True)
    (work / "job.json").write_text(json.dumps(job), encoding="utf-8")
    with open(log, "w", encoding="utf-8") as file:
        command = [sys.executable, str(script), str(work)]
        code = subprocess.run(command, stdout=file, stderr=subprocess.STDOUT, env=environment).returncode
    if code or not result.exists():
        said = log.read_text(encoding="utf-8", errors="replace").split("\n")
        last = next((line.strip() for line in reversed(said) if line.strip()), "it said nothing")
        raise Failed(f"{name} ended with code {code}: {last}")
    found: dict[str, Any] = json.loads(result.read_text(encoding="utf-8"))
    return found


def cpu_ticks() -> tuple[int, int]:
    """Give (ticks that the host took for other guests, all ticks) since the start of the machine; zeros elsewhere."""
    with suppress(OSError, ValueError, IndexError):
        ticks = [int(word) for word in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]]
        return ticks[7], sum(ticks)
    return 0, 0


def stolen(before: tuple[int, int], after: tuple[int, int]) -> float:
    """Give the share of CPU time that the host took between two moments."""
    return (after[0] - before[0]) / max(after[1] - before[1], 1)


def machine(load: float) -> dict[str, Any]:
    """Name what was measured on, with the load before the first run."""
    from lnexp.launch import cores

    processor, clock = platform.processor(), []
    if Path("/proc/cpuinfo").exists():
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8")
        named = re.search(r"^model name\s*: (.+)$", text, re.MULTILINE)
        processor = named[1] if named else processor
        clock = [float(mhz) for mhz in re.findall(r"^cpu MHz\s*: ([\d.]+)$", text, re.MULTILINE)]
    versions = {"python": platform.python_version()}
    for package in ("lnexp", "torch", "ve-fairseq", "fairseq", "numpy"):
        with suppress(PackageNotFoundError):
            versions[package] = version(package)
    return {"processor": processor, "mhz": clock, "cores": cores(), "load_before": load, "versions": versions,
            "system": platform.system() + " " + platform.machine()}  # fmt: skip


def machine_lines(found: dict[str, Any], threads: int, steal: Sequence[float]) -> list[str]:
    """Write down the machine; of its clock and its host only where the host took time."""
    lines = [
        f"{found['processor']}, {found['cores']} cores, {found['system']}; threads {threads}; "
        f"load before the first run {found['load_before']:.1f}.",
        "Versions: " + ", ".join(f"{name} {value}" for name, value in found["versions"].items()) + ".",
    ]
    if steal and max(steal) > STOLEN:
        clock = f"; clock said to be {min(found['mhz']):,.0f} to {max(found['mhz']):,.0f} MHz" if found["mhz"] else ""
        shares = ", ".join(f"{share:.1%}" for share in steal)
        lines.append(f"**The host took CPU time for other guests (steal), round by round {shares}**{clock}.")
    return lines


def warn_if_busy(name: str) -> float:
    """Give the load, and say so where something else runs."""
    load = os.getloadavg()[0]
    if load > BUSY:
        print(f"{name}: load {load:.1f} before the first run: something else is running, the figures will not hold")
    return load


def write(report: dict[str, Any], page: str, stem: Path) -> None:
    """Write stem.json and stem.md, whole or not at all."""
    from lnexp.rundir import write_json, write_text

    stem.parent.mkdir(parents=True, exist_ok=True)
    write_json(Path(f"{stem}.json"), plain(report))
    write_text(Path(f"{stem}.md"), page)


def plain(value: Any) -> Any:
    """Turn the spreads into plain dicts."""
    if is_dataclass(value) and not isinstance(value, type):
        return asdict(value)
    if isinstance(value, dict):
        return {k: plain(v) for k, v in value.items()}
    return [plain(v) for v in value] if isinstance(value, list) else value
