"""What a run has to remember over a restart besides the backend's own state; kept in every checkpoint."""

from __future__ import annotations

from dataclasses import dataclass, field

from lnexp import rundir
from lnexp.config import Run

CHANCE = 0.9
"""A best validation above this share of the bits of word frequencies alone counts as never having learned."""


@dataclass
class Progress:
    """Where the run stands."""

    wall_s: float = 0.0
    """Seconds of training, validation and decoding so far, without start-up."""
    best_loss: float = float("inf")
    best_nll: float = float("inf")
    stale: int = 0
    """Validations since the best one."""
    validated: int = 0
    """Update of the last validation: one that was cut is done again."""
    target_tokens: float = 0.0
    """Trained on so far, the ends of sentences with them; like `parts` absent from old checkpoints."""
    parts: dict[str, float] = field(default_factory=dict)
    """Seconds by part (timing.py), start-up with them."""

    def better(self, updates: int, loss_bits: float, nll_bits: float) -> bool:
        """Take the losses of a validation over; say whether it is the best one."""
        self.best_nll, self.validated = min(self.best_nll, nll_bits), updates
        if loss_bits < self.best_loss:
            self.best_loss, self.stale = loss_bits, 0
            return True
        self.stale += 1
        return False

    def bound_met(self, run: Run, updates: int, updates_per_epoch: int) -> bool:
        """Say whether the run has reached one of the bounds that it was given."""
        return bool(
            (run.max_updates and updates >= run.max_updates)
            or (run.max_epochs and updates >= run.max_epochs * updates_per_epoch)
            or (run.max_wall_s and self.wall_s >= run.max_wall_s)
            or (run.patience and self.stale >= run.patience)
        )

    def at_chance(self, run: Run, updates: int, updates_per_epoch: int, chance: float) -> str | None:
        """Say so where the run never beat guessing by word frequency (`chance`, bits a token): it learned nothing."""
        # A run that was stopped within its warm-up or first epoch had no chance to show anything.
        tried = updates >= max(updates_per_epoch, 2 * run.schedule.warmup_updates)
        if self.best_nll < chance * CHANCE or not tried:
            return None
        need = f"need below {chance * CHANCE:.2f} (word frequencies alone give {chance:.2f})"
        return f"stayed at chance: best valid cross-entropy {self.best_nll:.2f} bits, {need}"


@dataclass
class Window:
    """Sums over the updates since the last training row; a restart leaves no seam in it."""

    updates: int = 0
    tokens: float = 0.0
    loss: float = 0.0
    nll: float = 0.0
    gnorm: float = 0.0
    seconds: float = 0.0

    def add(self, update: dict[str, float], seconds: float) -> None:
        self.updates += 1
        self.tokens += update["tokens"]
        self.loss += update["loss_bits"] * update["tokens"]
        self.nll += update["nll_bits"] * update["tokens"]
        self.gnorm += update["gnorm"]
        self.seconds += seconds

    def row(self) -> rundir.Row:
        """Give the means: losses by token, the gradient norm by update, target tokens a second of updates alone."""
        return {
            "loss_bits": self.loss / self.tokens,
            "nll_bits": self.nll / self.tokens,
            "gnorm": self.gnorm / self.updates,
            "tokens_per_s": round(self.tokens / self.seconds, 1),
        }
