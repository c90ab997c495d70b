"""How values are written for people: factor names, rates, durations, states, and foreign text made safe to print."""

from __future__ import annotations

import math
import unicodedata
from typing import Any

from lnexp.report.collect import MISSING, Result
from lnexp.report.group import Group
from lnexp.report.interval import Sample

NOTHING = "–"
_LABELS = {
    "model.norm": "model",
    "schedule.warmup_updates": "warm-up",
    "schedule.name": "schedule",
    "optim.name": "optimizer",
    "optim.lr": "lr_max",
    "data.name": "corpus",
    "size.encoder_layers": "encoder layers",
    "size.decoder_layers": "decoder layers",
    "devices.precision": "precision",
}
MODELS = {"post": "Post-LN", "pre": "Pre-LN"}


def factor(key: str) -> str:
    """Name a config field as the paper would, or by its own name."""
    return _LABELS.get(key, key)


def level(key: str, value: Any) -> str:
    """Write one value of a factor: "Post-LN", "none" (no warm-up), "5e-4"."""
    if value is None:
        return NOTHING
    if key == "model.norm":
        return MODELS.get(value, plain(str(value), 40))
    if key == "schedule.warmup_updates" and value == 0:
        return "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list):
        return ", ".join(level("", v) for v in value)
    return number(value) if isinstance(value, int | float) else plain(str(value), 60)


def config_name(flat: dict[str, Any], factors: list[str]) -> str:
    """Name a configuration by the factors that vary: "Post-LN, warm-up 200, lr_max 5e-4"."""
    parts = []
    for key in factors:
        text = level(key, flat.get(key))
        if key == "schedule.warmup_updates":
            text = "no warm-up" if text == "none" else f"warm-up {text}"
        elif key != "model.norm":
            text = f"{factor(key)} {text}"
        parts.append(text)
    return ", ".join(parts)


def number(value: float) -> str:
    """Write a setting shortly: 4096, 0.1, 5e-4."""
    if isinstance(value, int) or not math.isfinite(value) or value == 0 or 0.01 <= abs(value) < 1e6:
        return f"{value:.10g}" if math.isfinite(value) else str(value)
    mantissa, _, exponent = f"{value:.6e}".partition("e")
    return f"{mantissa.rstrip('0').rstrip('.')}e{int(exponent)}"


def count(value: int) -> str:
    return f"{value:,}"


def plural(value: int, noun: str) -> str:
    """Write "1 run", "2 runs"."""
    return f"{count(value)} {noun}{'' if value == 1 else 's'}"


def duration(seconds: float) -> str:
    """Write a wall-clock time: "8.3 s", "4 min 20 s", "3 h 05 min"."""
    if seconds < 60:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02d} min"


def sample(values: Sample) -> str:
    """Write "29.46 ± 0.51", or "29.46" where one seed gives no interval. Whoever prints it adds the n."""
    half = values.half_width
    return f"{values.mean:.2f}" + (f" ± {half:.2f}" if half is not None else "")


def state(result: Result) -> str:
    """Write how a run stands: "diverged at update 412", "failed: disk full"."""
    if result.state in ("diverged", "interrupted"):
        return f"{result.state} at update {result.updates}"
    if result.state == "running":
        return f"running, update {result.updates}"
    if result.state in ("failed", "damaged") and result.reason:
        return f"{result.state}: {plain(result.reason, 100)}"
    if result.state == MISSING and result.reason and result.config:
        return f"{MISSING} ({plain(result.reason, 60)})"
    return result.state


def states(group: Group) -> str:
    """Write how the runs of a group stand; each kind once, with its count where there are several runs."""
    if len(group.runs) == 1:
        return state(group.runs[0])
    if len(group.states) == 1 and "done" in group.states:
        return "done"
    parts = []
    for kind, times in group.states.items():
        runs = [r for r in group.runs if r.state == kind]
        if kind == "diverged":
            at = ", ".join(str(r.updates) for r in runs)
            parts.append(f"{times} diverged at update{'s' if times > 1 else ''} {at}")
        elif times == 1 and kind == "failed":
            parts.append(f"1 {state(runs[0])}")
        else:
            parts.append(f"{times} {kind}")
    return ", ".join(parts)


def plain(text: str, limit: int = 200) -> str:
    """Make foreign text one short line: control and direction characters spelt out, the middle left out if long."""
    if len(text) > limit:
        text = text[: limit // 2] + " … " + text[len(text) - limit // 2 :]
    shown = []
    for char in text:
        if char.isspace():
            shown.append(" ")
        elif unicodedata.category(char) in ("Cc", "Cf", "Cs", "Zl", "Zp") and char != "\u200d":  # keeps joined emoji
            shown.append(f"U+{ord(char):04X}")
        else:
            shown.append(char)
    return "".join(shown)
