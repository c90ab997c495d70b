"""What a run has to remember over a restart besides the backend's own state; kept in every checkpoint."""

from __future__ import annotations

from dataclasses import dataclass

from lnexp import rundir


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
