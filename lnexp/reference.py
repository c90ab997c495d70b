"""Every setting with its meaning, read off the dataclasses themselves, and the options of every group.

Also what is said of a setting that is none of them: Hydra's and OmegaConf's messages in our own words.
"""

from __future__ import annotations

import ast
import re
from dataclasses import fields, is_dataclass
from difflib import get_close_matches
from inspect import getmodule, getsource
from pathlib import Path
from typing import Any

from lnexp.config import Run

# Beside the package in a checkout, inside it once installed from a wheel.
_INSIDE = Path(__file__).parent / "conf"
CONF = _INSIDE if _INSIDE.is_dir() else Path(__file__).parent.parent / "conf"
_KINDS = {"Integer": "a whole number", "Float": "a number"}


def settings() -> str:
    """Give the text of `lnexp show --help`."""
    groups = sorted(p.name for p in CONF.iterdir() if p.is_dir() and options(p.name))
    width = max(map(len, groups))
    text = ["groups (group=option):"]
    for group in groups:
        text.append(f"  {group.ljust(width)}  {options(group)}")
    text += ["", "settings (name=value), with the meaning of each:"]
    return "\n".join([*text, *_fields(Run(), "")]) + "\n"


def _fields(value: Any, prefix: str) -> list[str]:
    docs = _docs(type(value))
    lines = []
    for f in fields(value):
        inner = getattr(value, f.name)
        if is_dataclass(inner):
            lines += _fields(inner, f"{prefix}{f.name}.")
        else:
            lines.append(f"  {(prefix + f.name).ljust(28)}  {docs.get(f.name, '')}".rstrip())
    return lines


def _docs(kind: type) -> dict[str, str]:
    """Read the string that stands under a field."""
    module = getmodule(kind)
    assert module
    tree = next(n for n in ast.parse(getsource(module)).body if isinstance(n, ast.ClassDef) and n.name == kind.__name__)
    found, name = {}, ""
    for node in tree.body:
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            name = node.target.id
        elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            found[name] = " ".join(node.value.value.split())
    return found


def options(group: str) -> str:
    """Give the options of a group in one line."""
    return ", ".join(sorted(p.stem for p in (CONF / group).glob("*.yaml")))


def _names(part: Any, prefix: str) -> list[str]:
    values = [(f"{prefix}{f.name}", getattr(part, f.name)) for f in fields(part)]
    return [n for name, value in values for n in (_names(value, f"{name}.") if is_dataclass(value) else [name])]


NAMES = _names(Run(), "")
"""The full name of every setting."""


def no_such_setting(name: str) -> str:
    """Give the line for a name that is neither a setting nor a group."""
    known = NAMES + [p.name for p in CONF.iterdir() if p.is_dir()]
    leaf = name.rpartition(".")[2]
    near = dict.fromkeys(get_close_matches(name, known, 1, 0.5) + [k for k in known if k.rpartition(".")[2] == leaf])
    hint = f"; did you mean {' or '.join(list(near)[:2])}?" if near else ""
    return f"{name}: no such setting{hint} (see `lnexp show --help`)"


def in_our_words(error: BaseException) -> str:
    """Make one line of a Hydra or OmegaConf error: the setting, then what it needs."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()] or [type(error).__name__]
    text = lines[0]
    key = next((line.split(":", 1)[1].strip() for line in lines if line.startswith("full_key:")), "")
    if found := re.search(r"UserError raised while resolving interpolation: (.*)", text):  # by lnexp.scale
        return found[1]
    if found := re.search(r"Could not find '(.*)/(.*)'", text):
        there = re.findall(r"^\t(\S+)$", str(error), re.M)
        return f"{found[1]}={found[2]}: no such option; need {'one of ' * bool(there)}{', '.join(there) or 'another'}"
    if found := re.search(r"Key '(.*)' not in '\w+'", text):
        return no_such_setting(key or found[1])
    if found := re.search(r"Value '(.*)' of type '\w+' could not be converted to (Integer|Float)", text):
        return f"{key}={found[1]}: need {_KINDS[found[2]]}"
    if found := re.search(r"Value '(.*)' is not a valid bool", text):
        return f"{key}={found[1]}: need true or false"
    if found := re.fullmatch(r"field '(.*)' is not Optional", text):
        return f"{found[1]}=null: need a value"
    return f"{f'{key}: ' if key and key not in text else ''}{text} (see `lnexp show --help`)"
