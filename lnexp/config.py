"""The typed configuration of one run: what may be set, and what makes two runs the same run.

In: the values that Hydra composed from conf/ and the command line. Out: a `Run` and its 8-digit id.
Everything below cli and launch sees these dataclasses only, and each stage only its own part.

Defaults here are neutral ("as before the field existed") and never change; conf/*.yaml carries real values.
The id hashes values that differ from neutral, so a new field keeps old ids and a changed recipe makes new ones.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass, field, fields, is_dataclass
from pathlib import Path
from typing import Any

from lnexp.errors import UserError
from lnexp.schedule import Schedule


@dataclass
class Data:
    name: str = ""
    """The corpus: tatoeba_deen (shipped), toy_copy (generated), iwslt14_deen, wmt14_ende; others are your own."""
    src: str = ""
    """Source language code; `data.src=en data.tgt=de` turns the direction round."""
    tgt: str = ""
    """Target language code."""
    train: str = ""
    """bitext: what the training files are called without .{src} and .{tgt}: "dir/train". Plain, .gz or .xz."""
    valid: str = ""
    test: str = ""
    local: str | None = None
    """iwslt14_deen, wmt14_ende: a folder of yours that holds the published archives, packed or unpacked."""
    standard: bool = True
    """Refuse a published corpus whose line counts are not the standard ones; false = take it, marked as such."""
    normalize_punctuation: bool = False
    """Moses' punctuation normalisation and removal of control characters, on training text alone (WMT recipe)."""
    tokenizer: str = "moses"
    """moses, or none for text that is already tokenised."""
    split_hyphens: bool = False
    """Cut words at hyphens, marked @-@ (tokenizer.perl -a)."""
    lowercase: bool = False
    """Lower-case both sides before subwords; references for sacreBLEU stay raw."""
    subwords: str = "bpe"
    """bpe, or sentencepiece (unigram; data.pieces)."""
    bpe_merges: int = 0
    """Merges of the joint BPE; 0 = words as they are."""
    codes: str | None = None
    """A BPE codes file of yours to apply; none is learned then."""
    pieces: int = 0
    """Pieces of the joint sentencepiece model."""
    max_length: int = 0
    """Training pairs with more tokens on a side are left out; 0 = none are."""
    max_ratio: float = 0.0
    """Training pairs with one side this many times as long as the other are left out; 0 = none are."""
    limits_on: str = "subwords"
    """What max_length and max_ratio count: subwords, or tokens (then before anything is learned)."""
    valid_every: int = 0
    """Make every n-th training pair the validation set; 0 = the corpus has one."""


@dataclass
class Model:
    norm: str = ""
    """Where layer normalization stands, in encoder and decoder alike: "post" or "pre" (paper, Table 1)."""


@dataclass
class Size:
    encoder_layers: int = 0
    """Depth of the encoder."""
    decoder_layers: int = 0
    """Depth of the decoder."""
    d_model: int = 0
    """Width of the residual stream and of the embeddings."""
    d_ffn: int = 0
    """Inner width of the feed-forward sub-layer."""
    heads: int = 0
    """Attention heads; a divisor of d_model."""
    dropout: float = 0.0
    """On embeddings and on each sub-layer's output."""
    attention_dropout: float = 0.0
    activation_dropout: float = 0.0
    """After the ReLU of the feed-forward sub-layer."""
    share_embeddings: str = "all"
    """all = encoder, decoder and output; decoder = decoder and output; none."""


@dataclass
class Optim:
    name: str = "adam"
    """adam, radam or sgd."""
    lr: float = 0.0
    """The peak learning rate, lr_max of the paper."""
    betas: list[float] = field(default_factory=lambda: [0.9, 0.98])
    eps: float = 1e-8
    weight_decay: float = 0.0
    """Decoupled (AdamW), as in fairseq."""
    clip_norm: float = 0.0
    """Largest gradient norm; 0 = no clipping."""
    label_smoothing: float = 0.0


@dataclass
class Decode:
    beam: int = 1
    lenpen: float = 1.0
    """alpha of score / length^alpha; above 1 favours longer output."""
    max_len_a: float = 0.0
    max_len_b: int = 200
    """At most max_len_a * source_length + max_len_b tokens are written."""
    max_tokens: int = 4000
    """Source tokens a decoding batch. Its sentences share one length limit, hence part of the id."""
    precision: str = "fp32"
    """fp32 whatever the training, or bf16: a little faster, but a score may move with how batches are cut."""


@dataclass
class Track:
    mode: str = "none"
    """none, offline, online, or auto = online where a W&B key is configured, else offline."""
    project: str = "lnexp"
    entity: str | None = None
    tags: list[str] = field(default_factory=list)


@dataclass
class Devices:
    device: str = "cpu"
    """cpu, cuda, or auto = cuda where there is one."""
    threads: int = 0
    """CPU threads of one run; 0 = the machine's cores shared between the jobs that run side by side."""
    precision: str = "fp32"
    """fp32 (fairseq's own modules), fp32_fast, bf16, fp16 (CUDA), or auto = what was shown to be as good here."""
    max_tokens: int = 0
    """Tokens that fit in one forward pass; below tokens_per_update gradients are accumulated. 0 = all fit."""
    processes: int = 1
    """Processes of one run on this machine, each with its share of every update's tokens (and its own GPU)."""


@dataclass
class Probe:
    every: int = 0
    """train: updates between two rows of gradient norms and the like; 0 = none."""
    inputs: str = "batches"
    """probe: batches of the training data, or gaussian = N(0, 1) in place of the embedded words."""
    batches: int = 4
    """probe: batches that a mean is over."""
    tokens: int = 0
    """probe: tokens a batch, counted as tokens_per_update; 0 = as many as it says."""
    seeds: int = 1
    """probe: initialisations and batch orders, from `seed` on."""
    init: str = "fairseq"
    """probe: fairseq = as training starts, or xavier = every layer as the paper has it (fairseq leaves the FFN out)."""


@dataclass
class Scale:
    updates: float = 1.0
    """conf/experiment and conf/sweep divide the paper's update counts (warm-up, run) by this; 1 = as printed."""
    lr: float = 1.0
    """Its peak learning rates are multiplied by this there: a narrower model wants higher ones."""
    suffix: str = ""
    """Ends the names of its sweeps: runs of two scales are no one table."""


@dataclass
class Paths:
    outputs: str = "outputs"
    """Where run folders go; relative to the working folder."""
    cache: str = ""
    """Prepared data, keyed by content; safe to delete."""


@dataclass
class Run:
    data: Data = field(default_factory=Data)
    model: Model = field(default_factory=Model)
    size: Size = field(default_factory=Size)
    optim: Optim = field(default_factory=Optim)
    schedule: Schedule = field(default_factory=Schedule)
    decode: Decode = field(default_factory=Decode)
    track: Track = field(default_factory=Track)
    devices: Devices = field(default_factory=Devices)
    probe: Probe = field(default_factory=Probe)
    scale: Scale = field(default_factory=Scale)
    paths: Paths = field(default_factory=Paths)
    seed: int = 1
    """Of initialisation, batch order and dropout."""
    tokens_per_update: int = 0
    """Batch size as fairseq counts it: sentences times the longest side, in BPE tokens."""
    max_updates: int = 0
    """Stop after this many updates; 0 = no bound."""
    max_epochs: int = 0
    """Stop after this many epochs; 0 = no bound."""
    max_wall_s: float = 0.0
    """Stop after this many seconds of training; 0 = no bound."""
    patience: int = 0
    """Stop after this many validations without a better loss; 0 = never."""
    updates_per_epoch: int = 0
    """What counts as an epoch (max_epochs, validate_every, schedule.drop_epoch); 0 = a pass over the training data."""
    validate_every: int = 0
    """Updates between validations; 0 = one at the end of each epoch."""
    log_every: int = 100
    """Updates between two rows of training loss."""
    retry: str = "none"
    """none, or failed = try runs again that failed while training; what was cut goes on in any case."""
    keep: str = "all"
    """Checkpoints that stay once a run has ended: all (best, last, the one before), best, or none."""
    average: int = 0
    """Score the mean of the parameters after the last N validations too, beside the best checkpoint; 0 = no mean."""
    run_name: str = ""
    sweep_name: str = "adhoc"
    """The folder under outputs/ and the W&B group."""
    expected: str = ""
    """What the paper reports for this experiment, in words; printed beside the result."""

    @property
    def passes(self) -> int:
        """Forward passes of one update over all processes, so that neither what fits in memory nor the number of
        processes changes tokens_per_update."""
        passes = -(-self.tokens_per_update // self.devices.max_tokens) if self.devices.max_tokens else 1
        return -(-passes // self.devices.processes) * self.devices.processes


# What a run is *called*, where it lies, who watches it and how fast it runs do not make it another run; what `scale`
# makes of the paper's numbers stands in the settings themselves.
_NOT_IDENTITY = {
    "track", "paths", "probe", "scale", "run_name", "sweep_name", "expected", "log_every", "max_wall_s", "retry",
    "keep", "average", "devices.device", "devices.threads", "devices.max_tokens", "devices.processes",
    "data.local", "data.train", "data.valid", "data.test", "data.codes",
}  # fmt: skip


def identity(run: Run) -> dict[str, Any]:
    """Give the flat {"group.field": value} of everything that changes a run's numbers and is not neutral."""
    flat: dict[str, Any] = {}

    def walk(value: Any, neutral: Any, prefix: str) -> None:
        for f in fields(value):
            name = prefix + f.name
            mine, default = getattr(value, f.name), getattr(neutral, f.name)
            if name in _NOT_IDENTITY or mine == default:
                continue
            if is_dataclass(mine):
                walk(mine, default, name + ".")
            else:
                flat[name] = mine

    walk(run, Run(), "")
    return dict(sorted(flat.items()))


def run_id(run: Run, data: str) -> str:
    """Give the 8 hex digits of a run: hash of its identity and of the fingerprint of its data."""
    text = json.dumps([identity(run), data], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:8]


def freeze(run: Run) -> str:
    """Give the run as YAML, every value resolved, as it is kept in the run folder."""
    import yaml

    return yaml.safe_dump(asdict(run), sort_keys=False, allow_unicode=True)


def load(path: Path) -> Run:
    """Read a frozen config.yaml back; unknown or ill-typed entries raise UserError."""
    import yaml
    from omegaconf import OmegaConf
    from omegaconf.errors import OmegaConfBaseException

    try:
        # Read as `freeze` wrote it: OmegaConf's own reader takes a name such as 1e3 for a number.
        tree = yaml.safe_load(path.read_text(encoding="utf-8"))
        if not isinstance(tree, dict):
            raise ValueError(f"need a mapping, found {type(tree).__name__}")
        return OmegaConf.to_object(OmegaConf.merge(OmegaConf.structured(Run), tree))  # type: ignore[return-value]
    except (FileNotFoundError, NotADirectoryError):
        raise UserError(f"{path.parent}: not a run folder (no config.yaml)") from None
    except (OmegaConfBaseException, yaml.YAMLError, ValueError, OSError) as error:
        what = " ".join(str(error).split()).partition(" full_key:")[0]  # what follows is OmegaConf talking to itself
        key = getattr(error, "full_key", None)
        what = f"{key}: {what}" if key else what
        raise UserError(f"{path}: not a config of this version: {what[:200]}") from None
