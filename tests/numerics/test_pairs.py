"""Our batches against those of fairseq's own data set, read from the same files."""

import copy
import random
from pathlib import Path

import pytest
import torch
from fairseq.data import LanguagePairDataset

from lnexp.backend import open_session
from lnexp.backend.pairs import Pairs
from lnexp.data.prepare import prepare
from lnexp.launch import plan


@pytest.fixture(scope="module")
def ours(tmp_path_factory):
    words = ["data=toy_copy", "size=tiny", "max_updates=1", "tokens_per_update=200", "track=none"]
    run = plan([*words, f"paths.cache={tmp_path_factory.mktemp('cache')}"]).jobs[0].run
    return open_session(run, prepare(run.data, Path(run.paths.cache)), 1)._task.dataset("train")


def test_every_batch_is_fairseqs(ours):
    assert isinstance(ours, Pairs)
    theirs = copy.copy(ours)
    theirs.__class__ = LanguagePairDataset
    order = random.Random(1)
    batches = ours.batch_by_size(ours.ordered_indices(), max_tokens=200)
    mixed = [order.sample(range(len(ours)), n) for n in (1, 2, 17, 60)]
    for ids in [*batches[:40], *batches[-5:], *mixed]:
        got, want = ours.collater(ours.__getitems__(ids)), theirs.collater([theirs[i] for i in ids])
        assert got["ntokens"] == want["ntokens"] and got["nsentences"] == want["nsentences"]
        flat = [{**batch.pop("net_input"), **batch} for batch in (got, want)]
        for name, value in flat[1].items():
            if isinstance(value, torch.Tensor):
                assert torch.equal(flat[0].pop(name), value), name
        assert set(flat[0]) == {"ntokens", "nsentences"}
