"""Every setting with its meaning, read off the dataclasses themselves, and the options of every group."""

from __future__ import annotations

import ast
from dataclasses import fields, is_dataclass
from inspect import getmodule, getsource
from typing import Any

from lnexp.config import Run
from lnexp.launch import CONF


def settings() -> str:
    """Give the text of `lnexp show --help`."""
    groups = sorted(p.name for p in CONF.iterdir() if p.is_dir())
    width = max(map(len, groups))
    text = ["groups (group=option):"]
    for group in groups:
        text.append(f"  {group.ljust(width)}  {', '.join(sorted(p.stem for p in (CONF / group).glob('*.yaml')))}")
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
