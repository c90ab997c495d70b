"""The exported checkpoint: fairseq's own loader reads it, and the model it builds gives the same logits."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

sys.path.insert(0, str(Path(__file__).parents[2] / "scripts"))

from bench_export import export

from lnexp.backend import open_session
from lnexp.data.prepare import prepare
from lnexp.launch import plan

# In a process of its own, as it is used: fairseq composes with hydra's 1.1 habits, lnexp does not.
LOAD = """
import sys, torch
from fairseq import checkpoint_utils
(model,), config = checkpoint_utils.load_model_ensemble([sys.argv[1]])
assert config.model.arch == "transformer", config.model.arch
model.eval()
torch.save({"logits": model(*torch.load(sys.argv[2]))[0], "pre": model.decoder.layers[0].normalize_before,
            "layers": len(model.encoder.layers)}, sys.argv[3])
"""


@pytest.mark.parametrize("model", ["pre_ln", "post_ln"])
def test_round_trip(model: str, tmp_path: Path) -> None:
    words = ["data=toy_copy", "size=tiny", f"model={model}", "tokens_per_update=300", "optim.lr=1e-3"]
    run = plan([*words, "size.encoder_layers=1", "devices.threads=1", "max_updates=2", "track=none"]).jobs[0].run
    data = prepare(run.data, tmp_path / "cache", lambda _: None)
    session = open_session(run, data, 1)
    stream = session.updates_stream()
    next(stream), next(stream)
    export(run, session.state()["model"], data.folder, tmp_path / "stock.pt")
    batch = (torch.tensor([[5, 6, 7, 2], [1, 8, 9, 2]]), torch.tensor([4, 3]), torch.tensor([[2, 7, 6], [2, 9, 1]]))
    torch.save(batch, tmp_path / "batch.pt")
    command = [sys.executable, "-c", LOAD, *[str(tmp_path / f"{name}.pt") for name in ("stock", "batch", "out")]]
    environment = os.environ | {"TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD": "1"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    stock = torch.load(tmp_path / "out.pt")
    assert stock["pre"] == (model == "pre_ln") and stock["layers"] == 1
    with torch.no_grad():
        ours = session._trainer.get_model().eval()(*batch)[0]
    torch.testing.assert_close(ours, stock["logits"].detach(), rtol=1e-5, atol=1e-6)
    assert ours.std() > 0.1
