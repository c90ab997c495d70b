"""Make the server's copy of one run complete: what the run folder holds goes in, the rows that are missing go out."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lnexp.config import Run
from lnexp.errors import UserError
from lnexp.track import client
from lnexp.track.describe import options, summary
from lnexp.track.live import Tail
from lnexp.track.record import mark_sent


@dataclass
class Recorded:
    """What a run folder says of its run."""

    run: Run
    run_id: str
    folder: Path
    env: dict[str, Any]
    state: str
    scores: list[dict[str, Any]]
    more: dict[str, Any]
    samples: list[tuple[str, str, str]]
    """(source, reference, hypothesis) of some sentences."""


class Server:
    """The W&B server that the environment names, with the key that is configured for it."""

    def __init__(self, scratch: Path) -> None:
        """UserError without a key that the server takes; ConnectionError where it does not answer."""
        self._wandb, self._api = client.connect(scratch)
        self._entity = ""  # asked for where a run names none

    def send(self, recorded: Recorded) -> str:
        """Bring the server up to the run folder and say what was done. UserError where it has rows that the folder has
        not; any wandb error, TimeoutError and ConnectionError where it did not take everything (in SEND_S)."""
        try:
            return client.within(self._wandb, client.SEND_S, lambda: self._send(recorded))
        except UserError:
            raise
        except Exception:
            # What is left of this run in wandb's helper would hold up the next one and the end of the process.
            client.kill_core(self._wandb)
            client.forget(self._wandb)
            self._api = None
            raise

    def _default(self) -> str:
        self._entity = self._entity or client.entity(self._api)
        return self._entity

    def _send(self, recorded: Recorded) -> str:
        self._api = self._api or client.api(self._wandb)
        told = options(recorded.run, recorded.run_id, recorded.folder, recorded.env)
        account = recorded.run.track.entity or self._default()
        words = summary(recorded.state, recorded.scores, recorded.more)
        tail = Tail(recorded.folder)
        rows = list(tail.new())
        known = client.known(self._api, account, told["project"], told["id"])
        if known and known.rows > len(rows):
            raise UserError(
                f"the server has {known.rows} rows, the folder {len(rows)}; if it was trained anew, delete "
                f"{recorded.folder / 'wandb' / 'run-id'} to send it as another run"
            )
        if known and known.ended and known.rows == len(rows) and _same(words, known.summary):
            mark_sent(recorded.folder)
            return f"complete already, {len(rows)} rows"
        live = client.begin(self._wandb, "online", told)
        for row in rows[live.starting_step :]:
            live.log(row)
        if recorded.samples:
            live.summary["samples"] = client.table(self._wandb, recorded.samples)
        client.end(live, recorded.state, words)
        after = client.settled(self._api, live, len(rows))
        if after < len(rows):
            raise ConnectionError(f"the server has {after} of {len(rows)} rows; sync again")
        mark_sent(recorded.folder)
        return f"sent {len(rows) - live.starting_step} of {len(rows)} rows, {recorded.state}: {live.url}"


def _same(words: dict[str, Any], held: str) -> bool:
    have = json.loads(held)
    return all(have.get(name) == value for name, value in words.items() if name == "state" or name.startswith("final/"))
