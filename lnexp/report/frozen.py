"""A run's config.yaml in, nested plain values out; quick enough for 1,000 runs in a table.

The configs of a sweep differ in a few lines, so each top-level part is parsed once for all runs that share it.
"""

from __future__ import annotations

import re
from functools import lru_cache
from pathlib import Path
from typing import Any

from lnexp.errors import UserError

# A part begins at a key in the first column and takes all that follows up to the next.
_PART = re.compile(r"^(?=[A-Za-z_]\w*:(?:\s|$))", re.M)


def read_config(path: Path) -> dict[str, Any]:
    """Read it, or raise UserError. Runs share the nested values they have alike: read only."""
    import yaml

    try:
        text = path.read_text(encoding="utf-8")
        try:
            config: Any = {}
            for part in filter(None, _PART.split(text)):
                config.update(_parse(part))
        except (yaml.YAMLError, TypeError, ValueError):
            config = _parse(text)  # not as `freeze` writes it: take it whole, for its value or for its error
    except (yaml.YAMLError, ValueError, OSError) as error:
        raise UserError(f"{path}: cannot be read as YAML ({' '.join(str(error).split())})") from None
    if not isinstance(config, dict):
        raise UserError(f"{path}: need a mapping, found {type(config).__name__}")
    if not config:
        raise UserError(f"{path}: is empty; delete the run folder to have the run made again")
    return config


@lru_cache(maxsize=4096)
def _parse(text: str) -> Any:
    import yaml

    return yaml.load(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))  # libyaml: ten times as fast
