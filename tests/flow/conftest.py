"""What the tests of W&B share."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from fakes import wandb_desk as desk
from fakes.wandb_server import KEY, FakeWandb


@pytest.fixture
def server(tmp_path: Path) -> Iterator[FakeWandb]:
    """A stand-in for W&B's server, which wandb is told of, with a key."""
    with (
        FakeWandb() as fake,
        desk.untouched(tmp_path / "home", WANDB_BASE_URL=fake.url, WANDB_API_KEY=KEY, WANDB_INIT_TIMEOUT="2"),
    ):
        yield fake
