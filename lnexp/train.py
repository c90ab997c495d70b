"""One run, from its config to its scores; everything it learns lands in the run folder as it happens.

In: a checked Run, its folder, a thread count. Out: the run's final state. `running` turns into `done`, `diverged`
(a result, not an error: the loss is not finite, or never gets below chance), `failed` or `interrupted`.
The same call on the same folder goes on from the last checkpoint, and does nothing where the run has ended.
A run that failed while training is tried again only on request (retry=failed), one that failed before, always.
"""

from __future__ import annotations

import logging
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lnexp import averaging, evaluate, rundir, timing
from lnexp.config import Run, freeze
from lnexp.console import progress_bar
from lnexp.environment import environment
from lnexp.errors import UserError
from lnexp.files import words
from lnexp.guard import FolderLost, Lock, lock, log_file
from lnexp.memory import bounded, forget_peak, smaller_passes
from lnexp.progress import Progress, Window
from lnexp.retention import trim
from lnexp.signals import Interrupted, Stop
from lnexp.takeover import again, take_over
from lnexp.timing import Clock

if TYPE_CHECKING:
    from lnexp.backend.session import Session
    from lnexp.data.prepare import Prepared
    from lnexp.track.sink import Sink

Say = Callable[[str], None]
SAVE_EVERY_S = 60.0
"""Training time between two checkpoints besides those at validations; what a kill can cost."""
EXPLODED = 1e6
"""A gradient norm (of the mean loss a token, before clipping) that no training comes back from."""


def train(run: Run, run_id: str, folder: Path, threads: int, say: Say, bar: bool = False) -> str:
    """Train, decode and score `run` in `folder`; give its state. UserError for what the user can mend. `bar` allows a
    progress bar where there is a terminal."""
    folder.mkdir(parents=True, exist_ok=True)
    with lock(folder, say) as held, log_file(folder):
        state = take_over(run, folder)
        if state in rundir.ENDED or (state == "failed" and not again(run, folder)):
            more = "retry=failed tries it again" if state == "failed" else "nothing to train"
            say(f"{folder.name}: {state} already, {more}")
            return state
        trained = _Training(run, run_id, folder, threads, say, bar, held)
        if before := rundir.read_status(folder):
            trained.before = before["updates"], before["wall_s"]
        try:
            with trained.stop.listening():
                rundir.write_text(folder / "config.yaml", freeze(run))
                rundir.write_status(folder, "running", *trained.before)
                return trained.go()
        except (Interrupted, KeyboardInterrupt):
            trained.end("interrupted", "stopped by a signal; the same command goes on from the last checkpoint")
            trained.stop.pass_on()
            raise
        except UserError as error:
            trained.end("failed", str(error))
            raise
        except Exception as error:
            logging.getLogger("lnexp").error("%s", traceback.format_exc())
            trained.end("failed", words(error))
            raise


class _Training:
    """The loop and its bookkeeping."""

    def __init__(self, run: Run, run_id: str, folder: Path, threads: int, say: Say, bar: bool, held: Lock) -> None:
        self.run, self.run_id, self.folder, self.threads, self.say = run, run_id, folder, threads, say
        self._bar, self._lock = bar, held
        self.stop = Stop()
        self.progress = Progress()
        self._window = Window()
        self._best: evaluate.Translation | None = None  # of valid, by the parameters in best.pt
        self._session: Session | None = None
        self._trained: dict[str, Any] = {}  # what the checkpoints are of
        self._kept: tuple[int, int] | None = None  # what last.pt holds: updates, and the update of its validation
        self._ended, self._last = False, "none"  # the latter: loss and gradient norm of the last update
        self._clock = Clock()
        self._began = time.monotonic()
        self.before, self._resumed = (0, 0.0), False  # where an earlier call stood; its checkpoint is read

    def go(self) -> str:
        forget_peak()
        with self._clock("startup"):
            from lnexp.backend import open_session
            from lnexp.data.prepare import prepare

            data = prepare(self.run.data, Path(self.run.paths.cache).expanduser(), self.say)
            session = self._session = open_session(self.run, data, self.threads, self.folder)
        session.clock = self._clock
        try:
            return self._train(session, data)
        finally:
            session.close()

    def _train(self, session: Session, data: Prepared) -> str:
        run, folder, clock = self.run, self.folder, self._clock
        with clock("startup"):
            env = environment(run, session, data, self.threads)
            self._resume(session, data)
            averaging.forget(self.folder, self.progress.validated)
            self._resumed = True
            rundir.write_json(folder / "env.json", env)
        with clock("tracking"):
            from lnexp.track.choose import open_sink

            sink = open_sink(run, self.run_id, folder, env, self.say)
        with sink:
            rows = rundir.RowFile(folder)

            def log(row: rundir.Row) -> None:
                with clock("tracking"):
                    self._lock.check()
                    rows.write(row)
                    sink.log(row)

            self._began = time.monotonic() - self.progress.wall_s
            with self.stop.gently():
                reason = self._loop(session, data, log)
                scores = self._score(session, data, sink)
            rows.close()
            chance, per_epoch = data.manifest["target_unigram_bits"], session.updates_per_epoch
            reason = reason or self.progress.at_chance(run, session.updates, per_epoch, chance)
            state = "diverged" if reason else "done"
            with clock("tracking"):
                sink.finish(state, scores, timing.flat(self._costs(session)))
        self.end(state, reason)
        trim(folder, run.keep)
        return state

    def end(self, state: str, reason: str | None) -> None:
        if self._ended:  # a signal after the end, when checkpoints may be gone already
            return
        session = self._session if self._resumed else None
        updates, wall_s = (session.updates, self.progress.wall_s) if session else self.before
        state = "interrupted" if updates and not session and state == "failed" else state  # what was trained can go on
        try:
            self._lock.check()
            rundir.write_status(self.folder, state, updates, wall_s, reason)
            self._ended = state in rundir.ENDED
        except (OSError, FolderLost) as error:  # read-only, or gone: then at least it is said
            if state in rundir.ENDED:
                raise  # a result that cannot be kept is none
            if str(error) not in str(reason):
                self.say(f"{self.folder.name}: {state}: {reason}; its status.json cannot be written ({words(error)})")
        else:
            if session:
                timing.write(self.folder, self._costs(session))

    def _costs(self, session: Session) -> dict[str, Any]:
        tokens = self.progress.target_tokens
        return timing.costs(self._clock.seconds(), session.updates, tokens, session.peak_device_mib)

    def _tick(self) -> float:
        self.progress.wall_s = time.monotonic() - self._began
        return self.progress.wall_s

    def _loop(self, session: Session, data: Prepared, log: Callable[[rundir.Row], None]) -> str | None:
        """Train until a bound is met; give the reason where the run diverged."""
        session.check = self.stop.obey  # between the batches of validation and the steps of decoding
        total = self.run.max_updates or self.run.max_epochs * session.updates_per_epoch
        try:
            with progress_bar(total, session.updates, self._bar) as bar:
                return self._updates(session, data, log, bar)
        except Interrupted:
            self._save(session)
            raise

    def _updates(self, session: Session, data: Prepared, log: Callable[[rundir.Row], None], bar: Any) -> str | None:
        from lnexp.backend import NonFinite

        run, progress = self.run, self.progress
        every = run.validate_every or session.updates_per_epoch
        mend = smaller_passes(run.tokens_per_update, run.passes)
        saved = recorded = self._tick()
        stream = session.updates_stream()
        while True:
            self.stop.obey()
            over = progress.bound_met(run, session.updates, session.updates_per_epoch)
            due = session.updates % every == 0 or over
            if session.updates and due and progress.validated != session.updates:
                log(self._validate(session, data))
                self._save(session)
                saved = self._tick()
            if progress.bound_met(run, session.updates, session.updates_per_epoch):  # a validation may use up patience
                return None
            began = time.monotonic()
            try:
                with bounded(f"update {session.updates + 1}", mend):
                    update = next(stream)
                if update["gnorm"] > EXPLODED:
                    raise NonFinite(f"the gradient norm is {update['gnorm']:.3g}")
            except NonFinite as error:
                return f"update {session.updates + 1}: {error}; before it {self._last}"
            self._last = f"training loss {update['loss_bits']:.3f} bits, gradient norm {update['gnorm']:.3g}"
            self._window.add(update, time.monotonic() - began)
            progress.target_tokens += update["tokens"]
            wall_s = self._tick()
            bar.update()
            if session.probed:
                log({"split": "probe", **self._where(session), **session.probed})
            if session.updates % run.log_every == 0:
                log({"split": "train", **self._where(session), **self._window.row()})
                with self._clock("tracking"):
                    rundir.write_status(self.folder, "running", session.updates, wall_s)
                    if wall_s - recorded > timing.EVERY_S:
                        timing.write(self.folder, self._costs(session))
                        recorded = wall_s
                self._window = Window()
            if wall_s - saved > SAVE_EVERY_S:
                self._save(session)
                saved = wall_s

    def _where(self, session: Session) -> rundir.Row:
        epoch, wall_s = round(session.epoch, 4), round(self.progress.wall_s, 3)
        return {"updates": session.updates, "epoch": epoch, "wall_s": wall_s, "lr": session.lr}

    def _validate(self, session: Session, data: Prepared) -> rundir.Row:
        progress = self.progress
        with self._clock("validation"):
            losses = session.validate()
        with self._clock("scoring"):
            translation = evaluate.translate(session, data, self.run, "valid", self.run.decode)
        bleu = translation.scores[0].value
        if progress.better(session.updates, **losses):
            self._best = translation
            self._save(session, best=True)
        self._tick()
        bound = f"/{self.run.max_updates}" if self.run.max_updates else ""
        self.say(f"{self.folder.name}: {session.updates}{bound} updates, valid loss {losses['loss_bits']:.3f} bits, "
                 f"valid sacreBLEU {bleu:.2f}, {progress.wall_s:.0f} s")  # fmt: skip
        return {"split": "valid", **self._where(session), **losses, "bleu": round(bleu, 4)}

    def _save(self, session: Session, best: bool = False) -> None:
        from lnexp.backend import checkpoint

        with self._clock("checkpointing"):
            self._lock.check()
            self.progress.parts = self._clock.seconds()
            own = {"progress": vars(self.progress), "window": vars(self._window), "trained": self._trained}
            state, folder = session.state() | own | {"last": self._last}, self.folder / "checkpoints"
            if best:
                checkpoint.write(state, folder / checkpoint.BEST)
            elif self._kept != (now := (session.updates, self.progress.validated)):
                if 0 < now[0] == now[1]:
                    averaging.keep(state, folder, self.run.average)
                checkpoint.write_last(state, folder)
                self._kept = now

    def _resume(self, session: Session, data: Prepared) -> None:
        from lnexp.backend import checkpoint

        self._trained = evaluate.trained_on(self.run, data)
        before, self.before = self.before, (0, 0.0)  # a checkpoint that cannot be read is no progress
        state = checkpoint.read_last(self.folder / "checkpoints", self.say, self._trained)
        self.before = before
        if state is None:
            if before[0]:
                self.say(f"{self.folder.name}: no checkpoint of its {before[0]} updates is left; begins anew")
            rundir.cut_rows(self.folder, -1)
            return
        session.load_state(state)
        self.progress, self._window = Progress(**state["progress"]), Window(**state["window"])
        self._clock.add(self.progress.parts)
        self._last, self._kept = state.get("last", "none"), (session.updates, self.progress.validated)
        rundir.cut_rows(self.folder, session.updates)
        self.say(f"{self.folder.name}: goes on from update {session.updates}")

    def _score(self, session: Session, data: Prepared, sink: Sink) -> list[dict[str, Any]]:
        """Give the entries of scores.json; none where the run broke down before its first checkpoint."""
        run = self.run
        with self._clock("scoring"):  # but for the search, which the session counts as decoding
            scores, test = evaluate.final(session, data, self.folder, self._best, self._lock.check, self.say)
        if scores:
            with self._clock("tracking"):
                lines = (data.raw("test", run.data.src), data.raw("test", run.data.tgt), test)
                sink.samples(list(zip(*lines, strict=True))[:20])
        return scores
