"""Moments of a run at which a test wants to strike: each makes a process stand still there until the test has.

The process makes the file `reached` in its working folder and waits for `struck`; the second time it passes by.
"""

from __future__ import annotations

import pkgutil
import signal
import sys
import time
from pathlib import Path
from typing import Any


def hold() -> None:
    if Path("reached").exists():
        return
    Path("reached").touch()
    while not Path("struck").exists():
        time.sleep(0.01)
    time.sleep(0.05)  # the signal was sent just before


def _first(target: str, when: Any = lambda *_: True, slow_s: float = 0.0) -> None:
    """Hold before a call of `target`, the first one that `when` takes; from then on make each call slower."""
    owner, name = target.rsplit(".", 1)
    place = pkgutil.resolve_name(owner)
    real = getattr(place, name)

    def call(*arguments: Any, **more: Any) -> Any:
        if when(*arguments):
            hold()
        if Path("reached").exists():
            time.sleep(slow_s)
        return real(*arguments, **more)

    setattr(place, name, call)


def update() -> None:
    _first("lnexp.backend.session.Session._update", lambda session, _: session.updates == 4)


def validation() -> None:
    seen: list[int] = []
    _first("fairseq.trainer.Trainer.valid_step", lambda *_: seen.append(0) or len(seen) == 2)


def decoding() -> None:
    """Between the batches of a decoding that would take minutes."""
    _first("lnexp.backend.generate.search")
    _first("lnexp.backend.incremental.Decoder.step", lambda *_: False, 2.0)


def saving() -> None:
    """In a checkpoint that takes 2 s, not the first one."""
    seen: list[int] = []
    _first("torch.save", lambda *_: seen.append(0) or len(seen) == 2, 2.0)


def kept() -> None:
    """Between the parameters of the second validation, kept for averaging, and the last.pt that knows of it."""
    _first("lnexp.backend.checkpoint.write_last", lambda state, _: state["updates"] == 6)


def known() -> None:
    """Right after that last.pt: a restart does not validate again."""
    place = pkgutil.resolve_name("lnexp.backend.checkpoint")
    real = place.write_last

    def call(state: dict[str, Any], folder: Path) -> None:
        real(state, folder)
        if state["updates"] == 6:
            hold()

    place.write_last = call


def stuck() -> None:
    """In a checkpoint that takes a minute."""
    _first("torch.save", slow_s=60.0)


def scoring() -> None:
    _first("lnexp.evaluate.translate", lambda session, data, run, split, decode: split == "test")


def preparation() -> None:
    _first("lnexp.data.build.Builder.build")


def start_up() -> None:
    _first("lnexp.backend.open_session")


def composing() -> None:
    _first("lnexp.launch.plan")


def launcher() -> None:
    """A launcher that answers SIGUSR1 and looks at what the run has left by then, as submitit does."""

    def answer(number: int, frame: object) -> None:
        left = [path for path in Path("outputs").rglob("*") if path.name in ("status.json", "last.pt")]
        words = [path.read_text() for path in left if path.suffix == ".json"]
        Path("answered").write_text("".join(words) + str(len(left)))

    signal.signal(signal.SIGUSR1, answer)
    update()


def slow_updates() -> None:
    Path("reached").touch()
    _first("lnexp.backend.session.Session._update", slow_s=0.3)


def main(moment: str, arguments: list[str]) -> None:
    signal.signal(signal.SIGINT, signal.default_int_handler)  # tests run in the background are born deaf to it
    if moment:
        globals()[moment]()
    from lnexp.cli import main as command

    sys.exit(command(arguments))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
