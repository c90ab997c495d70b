"""`make bench`: training speed of lnexp beside stock fairseq-train, on the same work, in alternation.

Each run is a process of its own (bench_side.py): lnexp, fairseq, a matrix product for the machine's peak, then again.
Both train the same model on the same batches of the folder that `lnexp prepare` makes, from the same seed, in the same
threads; neither validates nor saves. Results: outputs/bench/*.json and *.md, written anew after every pair.
Exit codes: 0 done, 1 a run failed or the two did not do the same work, 2 the input was wrong or something is missing.

python scripts/bench.py [options] [data.name=value | size.name=value | devices.name=value ...]
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import platform
import re
import shlex
import subprocess
import sys
import tempfile
from contextlib import suppress
from dataclasses import asdict, is_dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import bench_figures as figures

if TYPE_CHECKING:
    from lnexp.config import Run
    from lnexp.data.prepare import Prepared

SIDE = Path(__file__).with_name("bench_side.py")
BUSY = 0.5
"""A load above this before the first run means that the figures are of a shared machine."""


class Failed(Exception):
    """A run did not come to its end."""


def main(words: list[str] | None = None) -> int:
    options = parser().parse_args(words)
    missing = [name for name in ("torch", "fairseq", "fairseq_cli", "lnexp") if importlib.util.find_spec(name) is None]
    if missing:
        return complain(f"{', '.join(missing)} not installed for {sys.executable}: run `make bench`, or `make venv`", 2)
    from lnexp.errors import UserError

    try:
        return bench(options)
    except UserError as error:
        return complain(str(error), 2)
    except OSError as error:
        return complain(f"{error.filename}: {error.strerror}; --out DIR needs a folder that can be written", 2)
    except Failed as error:
        return complain(str(error), 1)
    except KeyboardInterrupt:
        return 130


def complain(line: str, code: int) -> int:
    print(f"bench: {line}", file=sys.stderr)
    return code


def parser() -> argparse.ArgumentParser:
    def count(word: str) -> int:
        if not word.isdigit() or int(word) < 1:
            raise argparse.ArgumentTypeError(f"{word}: need a whole number >= 1")
        return int(word)

    lines = (__doc__ or "").splitlines()
    made = argparse.ArgumentParser(prog="scripts/bench.py", description=lines[0])
    made.add_argument("--size", default="iwslt", help="a file of conf/size (default iwslt)")
    made.add_argument("--model", default="post_ln", help="a file of conf/model (default post_ln, fairseq's own)")
    made.add_argument("--tokens", type=count, default=4096, help="tokens a batch (default 4096)")
    made.add_argument("--updates", type=count, default=20, help="updates that count (default 20)")
    made.add_argument("--warmup", type=count, default=3, help="updates before them (default 3)")
    made.add_argument("--pairs", type=count, default=5, help="runs of each side (default 5)")
    made.add_argument("--threads", type=count, help="CPU threads of each run (default: all cores)")
    made.add_argument("--data", help="a file of conf/data (default: the shipped corpus, BPE of 10,000 merges)")
    made.add_argument("--local", type=Path, help="a folder with {train,valid,test}.{src,tgt}, a bitext of your own")
    made.add_argument("--out", type=Path, default=Path("outputs/bench"), help="where results go (outputs/bench)")
    made.add_argument("overrides", nargs="*", help="data.name=value, size.name=value, devices.name=value")
    return made


def bench(options: argparse.Namespace) -> int:
    from lnexp.config import freeze
    from lnexp.console import say
    from lnexp.data.prepare import prepare

    run = compose(options)
    options.out.mkdir(parents=True, exist_ok=True)
    load = os.getloadavg()[0]
    if load > BUSY:
        say(f"bench: load {load:.1f} before the first run: something else is running, the figures will not hold")
    data = prepare(run.data, Path(run.paths.cache).expanduser(), say)
    report: dict[str, Any] = {"settings": settings(run, data, options), "machine": machine(load), "pairs": []}
    report["command"] = shlex.join(["python", "scripts/bench.py", *sys.argv[1:]])
    shape = figures.Shape(
        run.size.encoder_layers, run.size.decoder_layers, run.size.d_model, run.size.d_ffn, data.manifest["vocabulary"]
    )
    name = f"train-{options.size}-{options.tokens}tok-{run.devices.threads}thr"
    updates = options.warmup + options.updates
    with tempfile.TemporaryDirectory(prefix="lnexp-bench-") as temporary:
        work = Path(temporary)
        (work / "config.yaml").write_text(freeze(run), encoding="utf-8")
        for number in range(1, options.pairs + 1):
            pair: dict[str, Any] = {}
            for side in ("lnexp", "fairseq"):
                pair[side] = measure(side, work, updates, run.devices.threads)
                rate = figures.tokens_per_second(pair[side]["seconds"], pair[side]["tokens"], options.warmup)
                say(f"pair {number}/{options.pairs}: {side.ljust(7)} {rate:8,.0f} target tokens/s")
            pair["gemm_gflops"] = measure("gemm", work, updates, run.devices.threads)["gflops"]
            batches = pair["fairseq"].pop("sentences")
            say(f"pair {number}/{options.pairs}: GEMM {pair['gemm_gflops']:,.0f} GFLOP/s")
            sentences = [tuple(sentence) for batch in batches[options.warmup :] for sentence in batch]
            report["pairs"].append(pair)
            report["check"] = figures.compare(report["pairs"][0]["lnexp"], report["pairs"][0]["fairseq"])
            report["faults"] = figures.all_faults(report["pairs"])
            report["summary"] = figures.summary(report["pairs"], shape, sentences, options.warmup)
            page = write(report, options.out / name)
    print(f"\n{page}\n{options.out / name}.json\n{options.out / name}.md")
    return complain("not the same work: " + "; ".join(report["faults"]), 1) if report["faults"] else 0


def compose(options: argparse.Namespace) -> Run:
    """Give the run of our side; fairseq's is translated from it. The rate is constant, as fairseq has that too."""
    from lnexp import launch
    from lnexp.errors import UserError

    for word in options.overrides:
        if not word.startswith(("data.", "size.", "devices.")):
            raise UserError(f"{word}: need data.name=value, size.name=value or devices.name=value (or see --help)")
    words = [f"data={options.data}"] if options.data else ["data=tatoeba_deen", "data.bpe_merges=10000"]
    if options.local:
        plain = re.sub(r"[^A-Za-z0-9._+-]+", "-", options.local.resolve().name).strip("-._+") or "local"
        path = str(options.local.resolve()).replace("\\", "\\\\").replace("'", "\\'")
        words += [f"data.name={plain[:100]}"]
        words += [f"data.{split}='{path}/{split}'" for split in ("train", "valid", "test")]
    words += [f"size={options.size}", f"model={options.model}", f"tokens_per_update={options.tokens}"]
    words += ["optim=adam", "optim.lr=1e-4", "schedule=constant", "track=none", "max_updates=1000000"]
    words += [f"devices.threads={options.threads or launch.cores()}", *options.overrides]
    run = launch.plan(words).jobs[0].run
    if run.devices.device != "cpu" or run.devices.max_tokens:
        raise UserError("devices: this benchmark runs on the CPU, without accumulation: leave device and max_tokens")
    return run


def settings(run: Run, data: Prepared, options: argparse.Namespace) -> dict[str, Any]:
    names = ("size", "model", "tokens", "updates", "warmup", "pairs")
    return {
        **{name: getattr(options, name) for name in names},
        "threads": run.devices.threads,
        "precision": run.devices.precision,
        "data": f"{run.data.name} {run.data.src}-{run.data.tgt} {data.fingerprint}",
        "vocabulary": data.manifest["vocabulary"],
        "shape": asdict(run.size),
        "optim": asdict(run.optim),
    }


def machine(load: float) -> dict[str, Any]:
    from lnexp.launch import cores

    processor = platform.processor()
    if Path("/proc/cpuinfo").exists():
        named = re.search(r"^model name\s*: (.+)$", Path("/proc/cpuinfo").read_text(encoding="utf-8"), re.MULTILINE)
        processor = named[1] if named else processor
    versions = {"python": platform.python_version()}
    for package in ("lnexp", "torch", "ve-fairseq", "fairseq", "numpy"):
        with suppress(PackageNotFoundError):
            versions[package] = version(package)
    return {"processor": processor, "cores": cores(), "system": platform.system() + " " + platform.machine(),
            "load_before": load, "versions": versions}  # fmt: skip


def measure(side: str, work: Path, updates: int, threads: int) -> dict[str, Any]:
    """Run one side to its end and read what it noted."""
    environment = os.environ | {
        "OMP_NUM_THREADS": str(threads),
        "MKL_NUM_THREADS": str(threads),
        "CUDA_VISIBLE_DEVICES": "",
        "TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD": "1",  # without it stock fairseq cannot read its own checkpoints
    }
    result, log = work / "result.json", work / f"{side}.log"
    result.unlink(missing_ok=True)
    with open(log, "w", encoding="utf-8") as file:
        command = [sys.executable, str(SIDE), side, str(work), str(updates)]
        code = subprocess.run(command, stdout=file, stderr=subprocess.STDOUT, env=environment).returncode
    if code or not result.exists():
        said = log.read_text(encoding="utf-8", errors="replace").split("\n")
        last = next((line.strip() for line in reversed(said) if line.strip()), "it said nothing")
        raise Failed(f"{side} ended with code {code}: {last}")
    found: dict[str, Any] = json.loads(result.read_text(encoding="utf-8"))
    if side != "gemm" and len(found["seconds"]) != updates:
        raise Failed(f"{side}: {len(found['seconds'])} updates instead of {updates}")
    return found


def write(report: dict[str, Any], stem: Path) -> str:
    """Write both files; give the page."""
    from lnexp.rundir import write_json, write_text

    page = figures.markdown(report)
    write_json(Path(f"{stem}.json"), plain(report))
    write_text(Path(f"{stem}.md"), page)
    return page


def plain(value: Any) -> Any:
    """Turn the spreads into plain dicts."""
    if is_dataclass(value) and not isinstance(value, type):
        return asdict(value)
    return {k: plain(v) for k, v in value.items()} if isinstance(value, dict) else value


if __name__ == "__main__":
    sys.exit(main())
