"""The command `lnexp`: one verb, one call. Each verb imports its stage itself, so that `table` never loads torch.

Exit codes: 0 done, 1 a run failed, 2 the input was wrong (one line on stderr), 130 stopped by a signal.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from itertools import takewhile
from pathlib import Path

from lnexp import __version__
from lnexp.errors import UserError
from lnexp.signals import sigterm_like_ctrl_c

USAGE = """usage: lnexp VERB [name=value ...]

  doctor      check versions, fairseq, devices, disk and W&B; a mend for each fault
              or a run before it starts: its need of a warm-up:  lnexp doctor --run [settings as for train]
  show        print the resolved run(s), their id, learning rate and batch; start nothing
  prepare     make the training data of a corpus (done by train where it is missing)
  train       train a run or a sweep; what is done is skipped, what was cut goes on
  eval        translate and score a trained run again:      lnexp eval RUN_FOLDER [decode=greedy] [--average N]
  status      what was wanted, is done, runs, diverged, failed:  lnexp status SWEEP [--watch|--json]
  clean       checkpoints of ended runs, listed or deleted: lnexp clean SWEEP [--keep best|none] [--yes]
  table       the results beside the paper's words:         lnexp table SWEEP [--format md|csv|latex|json]
  figure      the paper's figure from these results:     lnexp figure SWEEP [--format svg|pdf|png]
  probe       gradient norms, hidden norms and the like:    lnexp probe [settings|RUN_FOLDER] [--checkpoint best|last]
              and --theory: Section 3.3, predicted and measured:  lnexp probe --theory [--format md|json]
  dashboard   one HTML page of curves and results:          lnexp dashboard SWEEP [--watch [--port N]]
              or a workspace and report saved in W&B:     lnexp dashboard SWEEP --wandb [--dry-run]
  sync        send to W&B what it lacks of these runs:      lnexp sync SWEEP

Settings are Hydra's: name=value, groups as model=post_ln, several values with -m:
  lnexp train -m model=post_ln,pre_ln schedule.warmup_updates=0,200
  lnexp train sweep=demo
`lnexp VERB --help` says more; `lnexp --version` gives the version.
"""


def main(argv: list[str] | None = None) -> int:
    """Run one command; give its exit code."""
    arguments = sys.argv[1:] if argv is None else argv
    if not arguments or arguments[0] in ("-h", "--help", "help"):
        print(USAGE, end="")
        return 0
    if arguments[0] == "--version":
        print(f"lnexp {__version__}")
        return 0
    verb, rest = arguments[0], arguments[1:]
    try:
        if verb not in VERBS:
            raise UserError(f"no such verb; one of {', '.join(VERBS)}")
        if any(a in ("-h", "--help") for a in rest):
            print(_help(verb), end="")
            return 0
        with sigterm_like_ctrl_c():
            return VERBS[verb](rest)
    except UserError as error:
        print(f"lnexp {verb}: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print(f"lnexp {verb}: stopped", file=sys.stderr)
        return 130
    except BrokenPipeError:
        return 0
    finally:
        if "wandb" in sys.modules:
            from lnexp.track import client

            client.forget(sys.modules["wandb"])


def _help(verb: str) -> str:
    lines = USAGE.splitlines()
    first = next(i for i, line in enumerate(lines) if line.startswith(f"  {verb} "))
    more = takewhile(lambda line: line.startswith(" " * 14), lines[first + 1 :])
    line = "\n".join(each.removeprefix("  ") for each in (lines[first], *more))
    if verb in ("show", "train", "prepare", "probe"):
        from lnexp.reference import settings

        return f"{line.strip()}\n\n{settings()}"
    return f"{line.strip()}\n\nA folder may be named by its path or, below outputs/, by the sweep's name alone.\n"


def _doctor(arguments: list[str]) -> int:
    from lnexp.doctor import examine, examine_runs

    flags, rest = _flags(arguments, "--run")
    if flags:
        return examine_runs(rest)
    _none(rest)
    return examine()


def _show(arguments: list[str]) -> int:
    from lnexp.launch import plan
    from lnexp.show import describe

    print(describe(plan(arguments, bound=False)), end="")
    return 0


def _prepare(arguments: list[str]) -> int:
    from lnexp.console import say
    from lnexp.data.manifest import describe, notes
    from lnexp.launch import plan
    from lnexp.sweep import prepare_all

    for prepared in prepare_all([job.run for job in plan(arguments, bound=False).jobs]):
        for label, line in describe(prepared.manifest).items():
            say(f"{label}: {line}")
        for line in notes(prepared.manifest):
            say(f"note: {line}")
        names = "{source} {src}-{tgt}".format(**prepared.manifest)
        say(f"{names}: data {prepared.fingerprint} in {prepared.folder}")
    return 0


def _train(arguments: list[str]) -> int:
    from lnexp.sweep import run_all

    return run_all(arguments)


def _eval(arguments: list[str]) -> int:
    from lnexp.averaging import asked
    from lnexp.console import quiet, say
    from lnexp.evaluate import evaluate
    from lnexp.launch import cores, decode_of
    from lnexp.report.collect import find

    average, rest = _option([f"--{a}" if a.startswith("average=") else a for a in arguments], "--average", "none")
    if not rest:
        raise UserError("name a run folder: lnexp eval outputs/demo/RUN [decode=greedy] [--average N]")
    folder, count = find(rest[0], _outputs()), asked(average)
    run, decode = decode_of(folder, rest[1:])
    quiet()
    evaluate(folder, decode, Path(run.paths.cache).expanduser(), run.devices.threads or cores(), say, count)
    return 0


def _status(arguments: list[str]) -> int:
    from lnexp.report import status

    flags, rest = _flags(arguments, "--watch", "--json")
    path = _one(rest, "a sweep or run folder")
    if len(flags) > 1:
        raise UserError("--watch --json: need one of the two")
    if "--watch" in flags:
        status.watch(path, _outputs())
    else:
        print((status.data if "--json" in flags else status.status)(path, _outputs()), end="")
    return 0


def _clean(arguments: list[str]) -> int:
    from lnexp.clean import clean

    flags, rest = _flags(arguments, "--yes")
    keep, rest = _option(rest, "--keep", "best")
    clean(_one(rest, "a sweep or run folder"), keep, "--yes" in flags, _outputs())
    return 0


def _table(arguments: list[str]) -> int:
    from lnexp.results import show_table

    form, rest = _option(arguments, "--format", "md")
    return show_table(_one(rest, "a sweep or run folder"), form, _outputs())


def _dashboard(arguments: list[str]) -> int:
    flags, rest = _flags(arguments, "--watch", "--wandb", "--dry-run")
    port, rest = _option(rest, "--port", "0")
    path = _one(rest, "a sweep or run folder")
    if flags - {"--watch"}:
        from lnexp import board

        return board.show(path, _outputs(), flags)
    if "--watch" in flags:
        from lnexp.report import watch

        watch.watch(path, _outputs(), port)
        return 0
    if port != "0":
        raise UserError(f"--port {port}: only with --watch")
    from lnexp.results import show_dashboard

    return show_dashboard(path, _outputs())


def _sync(arguments: list[str]) -> int:
    from lnexp.console import say
    from lnexp.sync import sync

    return sync(_one(arguments, "a sweep or run folder"), _outputs(), say)


def _probe(arguments: list[str]) -> int:
    """Probe what settings ask for at initialisation, or with --checkpoint as trained; or a run folder's checkpoint."""
    if "--theory" in arguments:
        return _theory([a for a in arguments if a != "--theory"])
    from lnexp.console import quiet, say
    from lnexp.launch import cores
    from lnexp.survey import Choice, asked, survey

    checkpoint, rest = _option(arguments, "--checkpoint", "none")
    quantity, rest = _option(rest, "--quantity", "grad_norm_of_mean")
    choice = Choice(checkpoint, quantity)
    quiet()
    survey(*asked(rest, choice, _outputs()), cores(), say)
    return 0


def _theory(arguments: list[str]) -> int:
    """Measure the paper's lemmas; 1 where one does not hold."""
    from lnexp import lemmas
    from lnexp.console import progress_bar
    from lnexp.report import statements

    form, rest = _option(arguments, "--format", "md")
    _none(rest)
    statements.check_format(form)
    seen: set[int] = set()
    with progress_bar(lemmas.steps(), 0, True, "batch") as bar:

        def step(d: int) -> None:
            bar.update()
            if bar.disable and d not in seen:
                print(f"theory: measuring networks of width {d}", file=sys.stderr, flush=True)
            seen.add(d)

        rows = [statement.row() for statement in lemmas.examine(step)]
    print(statements.render(rows, form, lemmas.NOTES), end="")
    return 1 if statements.failed(rows) else 0


def _figure(arguments: list[str]) -> int:
    from lnexp.results import show_figure

    form, rest = _option(arguments, "--format", "svg")
    return show_figure(_one(rest, "a sweep or run folder"), form, _outputs())


def _one(arguments: list[str], what: str) -> str:
    if unknown := [a for a in arguments if a.startswith("-")]:
        raise UserError(f"{unknown[0]}: no such option (see `lnexp --help`)")
    if len(arguments) != 1:
        raise UserError(f"{' '.join(arguments) or 'nothing given'}: need {what}, as in outputs/demo or just demo")
    return arguments[0]


def _flags(arguments: list[str], *known: str) -> tuple[set[str], list[str]]:
    """Give the flags that are there, and what is left."""
    return {a for a in arguments if a in known}, [a for a in arguments if a not in known]


def _option(arguments: list[str], name: str, default: str) -> tuple[str, list[str]]:
    """Give the value of `name VALUE` or `name=VALUE`, and what is left."""
    rest = [part for a in arguments for part in (a.split("=", 1) if a.startswith(f"{name}=") else [a])]
    if name not in rest:
        return default, rest
    at = rest.index(name)
    return rest[at + 1] if at + 1 < len(rest) else "", rest[:at] + rest[at + 2 :]


def _outputs() -> str:
    """Give the folder of sweeps, as conf/config.yaml takes it from the environment."""
    return os.environ.get("LNEXP_OUTPUTS", "outputs")


def _none(arguments: list[str]) -> None:
    if arguments:
        raise UserError(f"{' '.join(arguments)}: this verb takes no settings")


VERBS: dict[str, Callable[[list[str]], int]] = {
    "doctor": _doctor,
    "show": _show,
    "prepare": _prepare,
    "train": _train,
    "eval": _eval,
    "status": _status,
    "clean": _clean,
    "table": _table,
    "dashboard": _dashboard,
    "probe": _probe,
    "figure": _figure,
    "sync": _sync,
}
