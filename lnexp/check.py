"""What is legal: each value is looked at before any data is touched; the first that is not gives one line."""

from __future__ import annotations

import re
from math import inf
from typing import Any

from lnexp import schedule as schedules
from lnexp.config import Run
from lnexp.errors import UserError
from lnexp.scale import check as check_scale


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
    choice("data.subwords", "bpe", "sentencepiece")
    need(data.bpe_merges >= 0, "data.bpe_merges", "need >= 0 (0 = no BPE)")
    if data.subwords == "sentencepiece":
        need(data.pieces >= 1, "data.pieces", "need >= 1 with data.subwords=sentencepiece")
        need(data.codes is None, "data.codes", "BPE codes do not go with data.subwords=sentencepiece")
    else:
        need(data.pieces == 0, "data.pieces", "need data.subwords=sentencepiece to count")
    need(data.max_length >= 0, "data.max_length", "need >= 0 (0 = no limit)")
    need(data.max_ratio == 0 or 1 <= data.max_ratio < inf, "data.max_ratio", "need >= 1 (0 = no limit)")
    choice("data.limits_on", "subwords", "tokens")
    need(data.valid_every == 0 or data.valid_every >= 2, "data.valid_every", "need >= 2 (0 = no split)")
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
    choice("decode.precision", "fp32", "bf16")
    choice("track.mode", "none", "offline", "online", "auto")
    choice("devices.device", "cpu", "cuda", "auto")
    choice("devices.precision", "fp32", "fp32_fast", "bf16", "fp16", "auto")
    slow = run.devices.precision == "fp16" and run.devices.device == "cpu"
    need(not slow, "devices.precision", "no fast kernels on a CPU; use bf16, or devices=gpu")
    need(run.devices.threads >= 0, "devices.threads", "need >= 0 (0 = shared fairly)")
    need(run.devices.max_tokens >= 0, "devices.max_tokens", "need >= 0 (0 = no accumulation)")
    probe = run.probe
    need(probe.every >= 0, "probe.every", "need >= 0 (0 = none)")
    choice("probe.inputs", "batches", "gaussian")
    need(probe.batches >= 1, "probe.batches", "need >= 1")
    need(probe.tokens >= 0, "probe.tokens", "need >= 0 (0 = as tokens_per_update)")
    need(probe.seeds >= 1, "probe.seeds", "need >= 1")
    choice("probe.init", "fairseq", "xavier")
    need(0 <= run.seed < 2**31, "seed", "need 0 <= seed < 2147483648")
    need(run.tokens_per_update >= 1, "tokens_per_update", "need >= 1")
    rule = f"need >= 1 and at most tokens_per_update={run.tokens_per_update}"
    need(1 <= run.devices.processes <= run.tokens_per_update, "devices.processes", rule)
    check_scale(run.scale)
    need(run.updates_per_epoch >= 0, "updates_per_epoch", "need >= 0 (0 = a pass over the training data)")
    need(run.validate_every >= 0, "validate_every", "need >= 0 (0 = at the end of each epoch)")
    for name in ("max_updates", "max_epochs", "max_wall_s", "patience"):
        need(0 <= getattr(run, name) < inf, name, "need >= 0 (0 = none)")
    need(run.log_every >= 1, "log_every", "need >= 1")
    need(run.retry in ("none", "failed"), "retry", "need one of none, failed")
    need(run.keep in ("all", "best", "none"), "keep", "need one of all, best, none")
    need(run.average >= 0, "average", "need >= 0 (0 = no mean of checkpoints)")
    for name in ("run_name", "sweep_name"):
        rule = "need a name of letters, digits and ._+- that can be a folder"
        need(bool(re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._+-]{0,99}", getattr(run, name))), name, rule)
    for name in ("outputs", "cache"):
        need(bool(getattr(run.paths, name)), f"paths.{name}", "need a folder")


def check_bound(run: Run) -> None:
    """Raise UserError where training would never end."""
    if not (run.max_updates or run.max_epochs or run.max_wall_s or run.patience):
        raise UserError(f"max_updates={run.max_updates}: need a bound: max_updates, max_epochs, max_wall_s or patience")
