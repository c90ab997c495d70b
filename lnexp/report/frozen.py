"""A run's config.yaml in, nested plain values out; quick enough for 1,000 runs in a table.

The configs of a sweep differ in a few lines, so each top-level part is parsed and checked once for all runs that
share it. `config.load`, which makes a Run of it, takes 20 times as long.
"""

from __future__ import annotations

import math
import re
from dataclasses import is_dataclass
from functools import cache, lru_cache
from pathlib import Path
from typing import Any, get_type_hints

from lnexp.config import Run
from lnexp.errors import UserError

# A part begins at a key in the first column and takes all that follows up to the next.
_PART = re.compile(r"^(?=[A-Za-z_]\w*:(?:\s|$))", re.M)
# Younger fields may be absent from an old run and have their neutral value then; these, by which the reports group,
# were there from the first.
_ALWAYS = (("model", "norm"), ("optim", "lr"), ("schedule", "warmup_updates"), ("seed",))
_NEED = {
    bool: "true or false", int: "a whole number", float: "a number", str: "text", list: "a list", dict: "a mapping",
}  # fmt: skip
_MEND = "write it as it was, or delete the run folder to have the run made again"


def read_config(path: Path) -> dict[str, Any]:
    """Read it, or raise UserError. Runs share the nested values they have alike: read only."""
    import yaml

    try:
        text = path.read_text(encoding="utf-8")
        try:
            config: Any = {}
            wrong = None
            for part in filter(None, _PART.split(text)):
                tree, fault = _parse(part)
                config.update(tree)
                wrong = wrong or fault
        except (yaml.YAMLError, TypeError, ValueError):
            config, wrong = _parse(text)  # not as `freeze` writes it: take it whole, for its value or for its error
    except FileNotFoundError:
        raise UserError(
            f"{path}: is missing; put it back, or delete the run folder to have the run made again"
        ) from None
    except (yaml.YAMLError, ValueError, OSError) as error:
        raise UserError(f"{path}: cannot be read as YAML ({' '.join(str(error).split())})") from None
    if not isinstance(config, dict):
        raise UserError(f"{path}: need a mapping, found {type(config).__name__}")
    if not config:
        raise UserError(f"{path}: is empty; delete the run folder to have the run made again")
    if wrong := wrong or _missing(config):
        raise UserError(f"{path}: {wrong}; {_MEND}")
    return config


@lru_cache(maxsize=4096)
def _parse(text: str) -> tuple[Any, str | None]:
    """Give what the text holds, and which setting in it has no value of its type."""
    import yaml

    tree = yaml.load(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))  # libyaml: ten times as fast
    return tree, _ill_typed(tree, Run, "") if isinstance(tree, dict) else None


def _missing(config: dict[str, Any]) -> str | None:
    for name in _ALWAYS:
        value: Any = config
        for step in name:
            value = value.get(step, ...) if isinstance(value, dict) else ...
        if value is ...:
            return f"{'.'.join(name)}: is missing"
    norm = config["model"]["norm"]
    return None if norm in ("post", "pre") else f"model.norm: {norm!s:.40}: need post or pre"


def _ill_typed(found: Any, kind: Any, name: str) -> str | None:
    if is_dataclass(kind) and isinstance(kind, type):
        if not isinstance(found, dict):
            return _says(found, name, dict)
        hints = _hints(kind)
        inner = (_ill_typed(v, hints[k], f"{name}.{k}" if name else k) for k, v in found.items() if k in hints)
        return next(filter(None, inner), None)
    plain = getattr(kind, "__origin__", kind)  # list[float] is a list here
    if plain not in _NEED:  # text or nothing
        return None if found is None else _ill_typed(found, str, name)
    fits = (int, float) if plain is float else (plain,)
    if type(found) not in fits or (plain is float and not math.isfinite(found)):
        return _says(found, name, plain)
    return None


def _says(found: Any, name: str, kind: Any) -> str:
    return f"{name}: {found!s:.40}: need {_NEED[kind]}"


@cache
def _hints(kind: type) -> dict[str, Any]:
    return get_type_hints(kind)
