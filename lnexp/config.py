"""The typed configuration of one run: what may be set, what is legal, and what makes two runs the same run.

In: the values that Hydra composed from conf/ and the command line. Out: a checked `Run` and its 8-digit id.
Everything below cli and launch sees these dataclasses only, and each stage only its own part.

Defaults here are neutral ("as before the field existed") and never change; conf/*.yaml carries real values.
The id hashes values that differ from neutral, so a new field keeps old ids and a changed recipe makes new ones.
"""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import asdict, dataclass, field, fields, is_dataclass
from math import inf
from pathlib import Path
from typing import Any

from lnexp import schedule as schedules
from lnexp.errors import UserError
from lnexp.schedule import Schedule


@dataclass
class Data:
    name: str = ""
    """The corpus: tatoeba_deen (shipped), toy_copy (generated), iwslt14_deen, wmt14_ende."""
    src: str = ""
    """Source language code; `data.src=en data.tgt=de` turns the direction round."""
    tgt: str = ""
    """Target language code."""
    local: str | None = None
    """A folder of yours with {train,valid,test}.{src,tgt}, plain or .gz, line by line parallel."""
    lowercase: bool = False
    """Lower-case both sides before BPE; references for sacreBLEU stay raw."""
    tokenizer: str = "moses"
    """moses, or none for text that is already tokenised."""
    bpe_merges: int = 0
    """Merges of the joint BPE; 0 = words as they are."""
    max_length: int = 0
    """Training pairs with more BPE tokens on a side are left out; 0 = none are."""


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
    """fp32."""
    max_tokens: int = 0
    """Tokens that fit in one forward pass; below tokens_per_update gradients are accumulated. 0 = all fit."""


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
    validate_every: int = 0
    """Updates between validations; 0 = one at the end of each epoch."""
    log_every: int = 100
    """Updates between two rows of training loss."""
    run_name: str = ""
    sweep_name: str = "adhoc"
    """The folder under outputs/ and the W&B group."""
    expected: str = ""
    """What the paper reports for this experiment, in words; printed beside the result."""

    @property
    def passes(self) -> int:
        """Forward passes of one update, so that what fits in memory never changes tokens_per_update."""
        return -(-self.tokens_per_update // self.devices.max_tokens) if self.devices.max_tokens else 1


# What a run is *called*, where it lies, who watches it and how fast it runs do not make it another run.
_NOT_IDENTITY = {
    "track", "paths", "run_name", "sweep_name", "expected", "log_every", "max_wall_s",
    "devices.device", "devices.threads", "devices.max_tokens", "data.local",
}  # fmt: skip


def check(run: Run) -> None:
    """Raise UserError for the first value that cannot work, before any data is touched."""

    def need(ok: bool, name: str, rule: str) -> None:
        if not ok:
            value: Any = run
            for part in name.split("."):
                value = getattr(value, part)
            raise UserError(f"{name}={value}: {rule}")

    def choice(name: str, *allowed: str) -> None:
        group, _, leaf = name.partition(".")
        need(getattr(getattr(run, group), leaf) in allowed, name, f"need one of {', '.join(allowed)}")

    data, size, optim, schedule, decode = run.data, run.size, run.optim, run.schedule, run.decode
    for name in ("data.src", "data.tgt"):
        code = getattr(data, name[5:])
        need(bool(re.fullmatch(r"[a-z]{2,3}", code)), name, "need a language code such as de or en")
    need(data.src != data.tgt, "data.tgt", "need a language other than data.src")
    choice("data.tokenizer", "moses", "none")
    need(data.bpe_merges >= 0, "data.bpe_merges", "need >= 0 (0 = no BPE)")
    need(data.max_length >= 0, "data.max_length", "need >= 0 (0 = no limit)")
    choice("model.norm", "post", "pre")
    for name in ("encoder_layers", "decoder_layers", "d_model", "d_ffn", "heads"):
        need(getattr(size, name) >= 1, f"size.{name}", "need >= 1")
    need(size.d_model % size.heads == 0, "size.heads", f"need a divisor of size.d_model={size.d_model}")
    need(size.d_model % 2 == 0, "size.d_model", "need an even width (sine and cosine positions)")
    for name in ("dropout", "attention_dropout", "activation_dropout"):
        need(0 <= getattr(size, name) < 1, f"size.{name}", "need 0 <= p < 1")
    choice("size.share_embeddings", "all", "decoder", "none")
    choice("optim.name", "adam", "radam", "sgd")
    need(0 < optim.lr < inf, "optim.lr", "need a finite rate > 0")
    need(len(optim.betas) == 2 and all(0 <= b < 1 for b in optim.betas), "optim.betas", "need two numbers, 0 <= b < 1")
    need(0 < optim.eps < inf, "optim.eps", "need a finite number > 0")
    need(0 <= optim.weight_decay < inf, "optim.weight_decay", "need a finite number >= 0")
    need(0 <= optim.clip_norm < inf, "optim.clip_norm", "need a finite number >= 0 (0 = no clipping)")
    need(0 <= optim.label_smoothing < 1, "optim.label_smoothing", "need 0 <= eps < 1")
    choice("schedule.name", *schedules.NAMES)
    need(schedule.warmup_updates >= 0, "schedule.warmup_updates", "need >= 0 (0 = no warm-up)")
    held = schedule.name in ("flat_inverse_sqrt", "linear")
    need(schedule.hold_updates >= 0, "schedule.hold_updates", "need >= 0")
    need(held or not schedule.hold_updates, "schedule.hold_updates", f"schedule={schedule.name} holds nothing; need 0")
    if schedule.name == "step_drop":
        need(schedule.drop_epoch >= 1, "schedule.drop_epoch", "need an epoch >= 1")
        need(0 < schedule.drop_factor <= 1, "schedule.drop_factor", "need 0 < factor <= 1")
        choice("schedule.after_drop", "constant", "inverse_sqrt")
    if schedule.name == "linear":
        start, name = max((getattr(schedule, n), n) for n in ("warmup_updates", "hold_updates"))
        rule = f"need more than schedule.{name}={start}: linear falls to zero there; set max_updates higher or it lower"
        need(schedule.total_updates > start, "schedule.total_updates", rule)
    need(decode.beam >= 1, "decode.beam", "need >= 1 (1 = greedy)")
    need(-inf < decode.lenpen < inf, "decode.lenpen", "need a finite number (1 = none)")
    need(0 <= decode.max_len_a < inf, "decode.max_len_a", "need a finite number >= 0")
    need(decode.max_len_b >= 0, "decode.max_len_b", "need >= 0")
    need(decode.max_len_a > 0 or decode.max_len_b > 0, "decode.max_len_b", "need > 0 where decode.max_len_a=0")
    need(decode.max_tokens >= 1, "decode.max_tokens", "need >= 1")
    choice("track.mode", "none", "offline", "online", "auto")
    choice("devices.device", "cpu", "cuda", "auto")
    choice("devices.precision", "fp32")
    need(run.devices.threads >= 0, "devices.threads", "need >= 0 (0 = shared fairly)")
    need(run.devices.max_tokens >= 0, "devices.max_tokens", "need >= 0 (0 = no accumulation)")
    need(0 <= run.seed < 2**31, "seed", "need 0 <= seed < 2147483648")
    need(run.tokens_per_update >= 1, "tokens_per_update", "need >= 1")
    for name in ("max_updates", "max_epochs", "max_wall_s", "patience", "validate_every"):
        need(0 <= getattr(run, name) < inf, name, "need >= 0 (0 = none)")
    need(run.log_every >= 1, "log_every", "need >= 1")
    for name in ("run_name", "sweep_name"):
        rule = "need a name of letters, digits and ._+- that can be a folder"
        need(bool(re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._+-]{0,99}", getattr(run, name))), name, rule)
    for name in ("outputs", "cache"):
        need(bool(getattr(run.paths, name)), f"paths.{name}", "need a folder")


def check_bound(run: Run) -> None:
    """Raise UserError where training would never end."""
    if not (run.max_updates or run.max_epochs or run.max_wall_s or run.patience):
        raise UserError(f"max_updates={run.max_updates}: need a bound: max_updates, max_epochs, max_wall_s or patience")


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


def run_id(run: Run, source: str) -> str:
    """Give the 8 hex digits of a run: hash of its identity and of its raw data (`source`, a content digest)."""
    text = json.dumps([identity(run), source], sort_keys=True)
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
        raise UserError(f"{path}: not a config of this version: {' '.join(str(error).split())[:200]}") from None
