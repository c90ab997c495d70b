"""Wrong input, one by one: exit code 2, one line on stderr that names the thing and the mend, no traceback."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from lnexp.cli import main
from lnexp.config import freeze
from lnexp.launch import plan

SMALL = ["data=toy_copy", "size=tiny", "tokens_per_update=500", "max_updates=2", "track=none"]
OWN = ["data=bitext", "data.src=de", "data.tgt=en", *SMALL[1:]]  # for a corpus of one's own, de-en
NAMES = [f"{split}.{lang}" for split in ("train", "valid", "test") for lang in ("de", "en")]

Out = pytest.CaptureFixture[str]
Begun = Callable[..., Path]


@pytest.fixture
def refuses(capsys: Out) -> Callable[..., None]:
    """Run a command that must be refused, and look for words in its line."""

    def check(arguments: list[str], *words: str) -> None:
        capsys.readouterr()
        code = main(arguments)
        out, err = capsys.readouterr()
        assert code == 2, out + err
        assert err.endswith("\n") and len(err.splitlines()) == 1, err
        assert err.startswith(f"lnexp {arguments[0]}: ") and "Traceback" not in out + err
        assert all(word in err for word in words), err

    return check


# What is wrong in the words themselves: arguments of `lnexp show`, and of its line the thing and the mend.
SETTINGS = [
    # No such thing.
    (["model=foo"], ["model=foo: no such option", "post_ln, pre_ln"]),
    (["schedule=cosine"], ["schedule=cosine: no such option", "inverse_sqrt", "linear"]),
    (["sweep=dmo"], ["sweep=dmo: no such option", "demo"]),
    (["experiment=smok"], ["experiment=smok: no such option", "smoke"]),
    (["hydra/launcher=nope"], ["hydra/launcher=nope: no such option", "joblib"]),
    (["modle=post_ln"], ["modle: no such setting", "did you mean model?"]),
    (["schedule.warmup=3"], ["schedule.warmup: no such setting", "did you mean schedule.warmup_updates?"]),
    (["dropout=0.1"], ["dropout: no such setting", "did you mean size.dropout?"]),
    (["+seeds=3"], ["seeds: no such setting", "did you mean seed or probe.seeds?"]),
    (["++schedule.warmup=3"], ["schedule.warmup: no such setting", "schedule.warmup_updates"]),
    (["schedule.name=cosine"], ["schedule.name=cosine", "need one of constant, inverse_sqrt"]),
    # Of the wrong kind.
    (["max_updates=abc"], ["max_updates=abc", "a whole number"]),
    (["max_updates=1.5"], ["max_updates=1.5", "a whole number"]),
    (["optim.lr=fast"], ["optim.lr=fast", "a number"]),
    (["optim.lr="], ["optim.lr=", "a number"]),
    (["data.lowercase=maybe"], ["data.lowercase=maybe", "true or false"]),
    (["size.heads=null"], ["size.heads=null", "need a value"]),
    (["optim.betas=0.9"], ["optim.betas", "list"]),
    (["model=null"], ["model=null", "one option: post_ln, pre_ln"]),
    (["size=3"], ["size=3", "one option", "tiny"]),
    (["model=[post_ln,pre_ln]"], ["model=[post_ln,pre_ln]", "one option"]),
    (["run_name=${nope}"], ["run_name", "nope", "not found"]),
    # Out of range.
    (["schedule.warmup_updates=-1"], ["schedule.warmup_updates=-1", ">= 0 (0 = no warm-up)"]),
    (["size.heads=3"], ["size.heads=3", "divisor of size.d_model=64"]),
    (["optim.lr=0"], ["optim.lr=0", "> 0"]),
    (["optim.lr=-1"], ["optim.lr=-1", "> 0"]),
    (["optim.lr=nan"], ["optim.lr=nan", "finite"]),
    (["devices.precision=fp16"], ["devices.precision=fp16: no fast kernels on a CPU", "devices=gpu"]),
    (["size.dropout=1"], ["size.dropout=1", "0 <= p < 1"]),
    (["run_name=a/b"], ["run_name=a/b", "folder"]),
    (["paths.outputs="], ["paths.outputs=", "need a folder"]),
    (["hydra.run.dir=x"], ["hydra.run.dir=x", "paths.outputs"]),
    # Bounds.
    (["schedule=linear", "max_updates=0", "max_epochs=3"], ["schedule.total_updates=0", "set max_updates"]),
    (["schedule=linear", "schedule.warmup_updates=2"], ["schedule.total_updates=2", "schedule.warmup_updates=2"]),
    # How it is written.
    (["optim.lr=[1"], ["optim.lr=[1", "bracket"]),
    (["seed"], ["seed", "name=value"]),
    (["=3"], ["=3", "name=value"]),
    (["a=b=c"], ["a=b=c", "quote"]),
    (["data.local=~/x"], ["data.local=~/x", "quote"]),
    (["seed=1,2"], ["seed=1,2", "several values need -m"]),
    (["--verbose"], ["--verbose", "name=value", "-m"]),
    (["-m", "hydra/launcher=joblib", "hydra.launcher.n_jobs=0"], ["hydra.launcher.n_jobs=0", ">= 1"]),
    # The corpus.
    (["data=tatoeba_deen", "data.src=fr"], ["data.src=fr", "only de and en"]),
    (["data=tatoeba_deen", "data.src=German"], ["data.src=German", "such as de or en"]),
    (["data=tatoeba_deen", "data.src=en"], ["data.tgt=en", "other than data.src"]),
    (["data.name=tatoba"], ["data.name=tatoba", "no such corpus", "tatoeba_deen", "data.train=DIR/train"]),
    (["data.local=/no/such/folder"], ["data.local=/no/such/folder", "only for iwslt14_deen", "data=bitext"]),
    (["data=iwslt14_deen", "data.local=/no/such/folder"], ["data.local=/no/such/folder", "no such folder"]),
    (["data=iwslt14_deen", "data.src=fr"], ["data.src=fr", "only de and en"]),
    (["data=bitext", "data.src=fr"], ["data.tgt=", "language code"]),
    (["data=bitext", "data.src=fr", "data.tgt=en"], ["data.train is not set", "DIR/train.fr and DIR/train.en"]),
    (["data=bitext", "data.src=fr", "data.tgt=en", "data.train=/no/x"], ["data.valid is not set"]),
    (["data.subwords=sentencepiece"], ["data.pieces=0", ">= 1"]),
    (["data.codes=/no/such/codes"], ["/no/such/codes", "cannot be read", "check the path"]),
]  # fmt: skip


@pytest.mark.parametrize(("settings", "words"), SETTINGS, ids=lambda x: " ".join(x) if isinstance(x, list) else x)
def test_settings(refuses: Callable[..., None], settings: list[str], words: list[str]) -> None:
    refuses(["show", *SMALL, *settings], *words)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["frobnicate"], ["frobnicate: no such verb", "doctor, show, prepare, train"]),
        (["doctor", "now"], ["now", "no settings"]),
        (["table"], ["nothing given", "outputs/demo"]),
        (["table", "a", "b"], ["a b", "need a sweep or run folder"]),
        (["status", "--all"], ["--all: no such option"]),
        (["eval"], ["name a run folder", "lnexp eval outputs/demo/RUN"]),
    ],
    ids=lambda x: " ".join(x),
)
def test_verbs(refuses: Callable[..., None], arguments: list[str], words: list[str]) -> None:
    refuses(arguments, *words)


REPORTS = ["table", "status", "dashboard", "eval"]


@pytest.mark.parametrize("verb", REPORTS)
def test_a_missing_folder(refuses: Callable[..., None], begun: Begun, verb: str) -> None:
    refuses([verb, "no/such"], "no/such: no such folder", "nothing lies under")
    begun(SMALL)
    refuses([verb, "no/such"], "no/such: no such folder", "has adhoc")


@pytest.mark.parametrize("verb", REPORTS)
def test_a_folder_without_runs(refuses: Callable[..., None], tmp_path: Path, verb: str) -> None:
    (tmp_path / "notes").mkdir()
    refuses([verb, str(tmp_path / "notes")], "notes: no runs here", "config.yaml")
    (tmp_path / "file").touch()
    refuses([verb, str(tmp_path / "file")], "file: not a folder")


@pytest.mark.parametrize("form", [["--format", "xml"], ["--format=xml"], ["--format"]], ids=" ".join)
def test_a_table_in_no_known_format(refuses: Callable[..., None], begun: Begun, form: list[str]) -> None:
    refuses(["table", str(begun(SMALL)), *form], "--format", "need one of md, csv, latex, json")


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ([], ["no checkpoints/best.pt", "train the run first"]),
        (["--average", "2"], ["--average 2: has the parameters of 0 validations", "train with average=2"]),
        (["average=0"], ["--average 0: need >= 1", "leave it out"]),
        (["seed=3"], ["seed=3", "decode=... and decode.name=value only"]),
        (["decode=beem"], ["decode=beem: no such option", "greedy"]),
        (["decode.beem=4"], ["decode.beem: no such setting", "did you mean decode.beam?"]),
        (["decode.beam=0"], ["decode.beam=0", ">= 1"]),
        (["decode=greedy,beam5_lp12"], ["decode=greedy,beam5_lp12", "one decoding at a time"]),
        (["decode.beam=[1"], ["decode.beam=[1", "bracket"]),
    ],
    ids=lambda x: " ".join(x),
)
def test_eval(refuses: Callable[..., None], begun: Begun, more: list[str], words: list[str]) -> None:
    folder = begun(SMALL)
    before = sorted(folder.iterdir())
    refuses(["eval", str(folder), *more], *words)
    assert sorted(folder.iterdir()) == before  # no lock's file either


def test_eval_of_a_sweep(refuses: Callable[..., None], begun: Begun) -> None:
    refuses(["eval", str(begun(SMALL).parent)], "adhoc: not a run folder", "no config.yaml")


@pytest.mark.parametrize("verb", ["prepare", "train"])
@pytest.mark.parametrize(
    ("name", "raw", "words"),
    [
        ("valid.en", None, ["data.valid=", "no file ", "valid.en", ".gz"]),
        ("train.en", b"eins\nzwei\n", ["train.de has 3 lines and ", "train.en has 2", "one sentence a line"]),
        ("test.de", b"", ["test.de is empty", "nothing to read"]),
        ("train.de", b"eins\nzw\xe4i\ndrei\n", ["train.de, line 2: not valid UTF-8", "convert"]),
        ("train.de", b"eins\nzwei\ndr\0i\n", ["train.de, line 3: a NUL byte", "remove it"]),
    ],
    ids=["missing", "unequal", "empty", "not UTF-8", "NUL"],
)
def test_a_corpus_of_ones_own(
    refuses: Callable[..., None], tmp_path: Path, verb: str, name: str, raw: bytes | None, words: list[str]
) -> None:
    folder = tmp_path / "corpus"
    folder.mkdir()
    for each in NAMES:
        (folder / each).write_bytes(b"eins\nzwei\ndrei\n")
    (folder / name).unlink() if raw is None else (folder / name).write_bytes(raw)
    refuses([verb, *OWN, *(f"data.{split}={folder}/{split}" for split in ("train", "valid", "test"))], *words)


def test_training_without_an_end(refuses: Callable[..., None]) -> None:
    refuses(["train", *SMALL, "schedule=constant", "max_updates=0"], "max_updates=0", "need a bound", "max_epochs")


def test_outputs_that_cannot_be_made(refuses: Callable[..., None], tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    refuses(["train", *SMALL, f"paths.outputs={tmp_path}/file/below"], "paths.outputs: ", "set paths.outputs=DIR")


def test_a_cache_that_cannot_be_made(refuses: Callable[..., None], tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    refuses(["train", *SMALL, f"paths.cache={tmp_path}/file/below"], "paths.cache=", "set paths.cache=DIR")


DAMAGED = [
    ("table", "status.json", '{"state', "JSON"),
    ("table", "status.json", "[]", "need a state"),
    ("table", "status.json", '{"state": "asleep"}', "running, done"),
    ("table", "scores.json", "[{", "JSON"),
    ("table", "scores.json", "{}", "need a list"),
    ("table", "scores.json", '[{"split": "test"}]', "lnexp eval"),
    ("table", "config.yaml", "model: [", "YAML"),
    ("table", "config.yaml", "- model\n- size\n", "need a mapping"),
    ("table", "metrics.jsonl", "rows\n", "line 1: not a row of JSON; delete this line"),
    ("train", "status.json", '{"state', "delete it"),
    ("train", "status.json", "[]", "delete it"),
    ("eval", "config.yaml", "model: [", "not a config of this version"),
    ("eval", "config.yaml", "warmup: 3", "not a config of this version: warmup: "),
    ("eval", "config.yaml", "optim: {lr: abc}", "not a config of this version: optim.lr: Value 'abc'"),
    ("eval", "config.yaml", "", "not a config of this version"),
]


@pytest.mark.parametrize(("verb", "name", "content", "words"), DAMAGED)
def test_a_damaged_file(
    refuses: Callable[..., None], begun: Begun, verb: str, name: str, content: str, words: str
) -> None:
    folder = begun(SMALL)
    (folder / name).write_text(content)
    refuses([verb, *(SMALL if verb == "train" else [str(folder)])], str(folder / name), words)


def test_a_folder_that_holds_another_run(refuses: Callable[..., None], begun: Begun) -> None:
    folder = begun(SMALL, state="interrupted")
    (folder / "config.yaml").write_text(freeze(plan([*SMALL, "seed=9"]).jobs[0].run))
    refuses(["train", *SMALL], f"{folder}: holds another run", "seed: 9 there", "delete it or set another run_name")


@pytest.mark.parametrize(
    ("bad", "words"),
    [
        ("schedule.warmup_updates=0,1,-1", ["schedule.warmup_updates=-1", ">= 0"]),
        ("model=pre_ln,mid_ln", ["model=mid_ln: no such option", "post_ln, pre_ln"]),
        ("size.heads=4,3", ["size.heads=3", "divisor"]),
        ("max_updates=2,many", ["max_updates=many", "a whole number"]),
        ("data.src=aa,bb", ["data.tgt=bb", "other than data.src"]),
    ],
)
def test_one_bad_job_stops_a_sweep_before_it_starts(
    refuses: Callable[..., None], tmp_path: Path, bad: str, words: list[str]
) -> None:
    refuses(["train", "-m", *SMALL, "seed=1,2", bad], *words)
    assert not (tmp_path / "outputs").exists()


def test_nothing_is_made_where_settings_are_wrong(refuses: Callable[..., None], tmp_path: Path) -> None:
    refuses(["train", *SMALL, "size.heads=3"], "size.heads=3")
    assert not (tmp_path / "outputs").exists() and not (tmp_path / "cache").exists()


NO_GPU = [
    (["devices=gpu"], ["devices.device=cuda: torch sees no CUDA device here", "use devices=cpu"]),
    (["devices.device=auto", "devices.precision=fp16"], ["devices.precision=fp16: no fast kernels on a CPU"]),
]


@pytest.mark.parametrize(("bad", "words"), NO_GPU, ids=lambda x: " ".join(x))
@pytest.mark.parametrize("sweep", [[], ["-m", "seed=1,2"]], ids=["run", "sweep"])
def test_nothing_is_made_where_the_device_is_not_there(
    refuses: Callable[..., None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    bad: list[str], words: list[str], sweep: list[str],
) -> None:  # fmt: skip
    """Before the data is prepared, too; `show` does without the device, as for a run that is sent elsewhere."""
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    refuses(["train", *sweep, *SMALL, *bad], *words)
    assert not (tmp_path / "outputs").exists() and not (tmp_path / "cache").exists()
    assert main(["show", *sweep, *SMALL, *bad]) == 0


@pytest.mark.parametrize("short", ["devices.max_tokens=5", "tokens_per_update=5"])
def test_nothing_is_made_where_a_pass_is_too_short(refuses: Callable[..., None], tmp_path: Path, short: str) -> None:
    refuses(["train", "-m", *SMALL, "seed=1,2", short], short, "longest training sentence")
    assert not (tmp_path / "outputs").exists()


@pytest.mark.parametrize("begun_before", [False, True])
def test_a_sweep_without_its_data_wants_nothing(
    refuses: Callable[..., None], tmp_path: Path, begun_before: bool
) -> None:
    """Its archive is not in the folder that is named; a sweep of the same name stays as it was."""
    sweep = tmp_path / "outputs" / "mine"
    if begun_before:
        sweep.mkdir(parents=True)
        (sweep / "sweep.json").write_text('{"sweep": "mine", "wanted": []}')
    before = {path: path.read_bytes() for path in sweep.glob("*")}
    (tmp_path / "archives").mkdir()
    missing = [*SMALL[1:], "data=iwslt14_deen", f"data.local={tmp_path}/archives", "sweep_name=mine", "seed=1,2"]
    refuses(["train", "-m", *missing], f"{tmp_path}/archives")
    assert {path: path.read_bytes() for path in sweep.glob("*")} == before and sweep.exists() == begun_before


@pytest.mark.parametrize("command", [[str(Path(sys.executable).with_name("lnexp"))], [sys.executable, "-m", "lnexp"]])
def test_the_shell_sees_the_same(command: list[str]) -> None:
    done = subprocess.run([*command, "train", "model=foo"], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "lnexp train: model=foo: no such option; need one of post_ln, pre_ln\n"
