"""The tracker of one run: rows, sample translations and final scores go in, a W&B run comes out, or nothing does.

The run folder is the truth; W&B is a view of it that may fail at any time without training noticing.
"""

from __future__ import annotations

from typing import Any, Self

from lnexp.rundir import Row


class Sink:
    """The tracker that tracks nothing; what the others have in common. `where` says where the record lies."""

    where: str | None = None

    def log(self, row: Row) -> None:
        """Take note of a row of metrics that has just been written to metrics.jsonl."""

    def samples(self, triples: list[tuple[str, str, str]]) -> None:
        """Take (source, reference, hypothesis) of some sentences."""

    def finish(self, state: str, scores: list[dict[str, Any]], more: dict[str, Any] | None = None) -> None:
        """Close with the run's final state, the entries of scores.json and `more`; later calls do nothing."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: object, trace: object) -> None:
        if kind is None:
            self.finish("done", [])
        else:
            self.finish("failed" if issubclass(kind, Exception) else "interrupted", [])
