"""How a configuration looks, on the page and in figures alike: one rule, so that a line is known again everywhere.

Colour says the model: Post-LN is orange, Pre-LN blue, a pair that colour-blind readers tell apart; in grey print Pre-LN
is the darker one and its markers are hollow. Dash says the warm-up: without one a line is dashed, with the longest it
is solid. What else varies is shade, from dark to light, and the shape of the marker.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from lnexp.report.collect import Flat
from lnexp.report.group import ALWAYS, factors

_NORM, _WARMUP = ALWAYS
SHAPES = ("circle", "triangle", "diamond", "square", "wedge")
NO_WARMUP = (6, 4)
DASHES: tuple[tuple[int, ...], ...] = ((), (2, 3), (10, 3, 2, 3), (14, 4))
"""Pixels drawn and left out, from the longest warm-up (solid) to shorter ones."""

# First, middle and last shade, on white and on a dark page. On its own ground each has a contrast of 3 to 1 or more.
_RAMPS = {
    "post": (("8f1d0a", "d4550c", "d08008"), ("ee4f2a", "f08b42", "f5cf74")),
    "pre": (("14126e", "1c50a8", "1a8fbd"), ("7f77f5", "6c9bf5", "62d0f2")),
}
_OTHER = (("303030", "5c5c5c", "8a8a8a"), ("d8d8d8", "a8a8a8", "808080"))


@dataclass(frozen=True)
class Look:
    """One line's look; colours as "#rrggbb"."""

    light: str
    """On white."""
    dark: str
    """On a dark page."""
    dash: tuple[int, ...]
    """Pixels drawn and left out in turn; none = solid."""
    shape: str
    """Of the marker, one of SHAPES."""
    hollow: bool


def look(norm: object, shade: int = 0, shades: int = 1, dash: tuple[int, ...] = ()) -> Look:
    """Give the look of a model's `shade`-th line of `shades`."""
    place = 0.5 if shades < 2 else shade / (shades - 1)
    light, dark = (_mix(ramp, place) for ramp in _RAMPS.get(str(norm), _OTHER))
    return Look(light, dark, dash, SHAPES[shade % len(SHAPES)], norm == "pre")


def looks(flats: Sequence[Flat]) -> list[Look]:
    """Give the look of each of these configurations."""
    warmups = sorted({f[_WARMUP] for f in flats if f.get(_WARMUP)}, reverse=True)
    dashed = [_NORM, _WARMUP] if len(warmups) <= len(DASHES) else [_NORM]
    others = [key for key in factors(flats) if key not in dashed]
    known: dict[object, list[str]] = {}
    for flat in flats:
        shades = known.setdefault(flat.get(_NORM), [])
        if (shade := _shade(flat, others)) not in shades:
            shades.append(shade)
    found = []
    for flat in flats:
        shades, warmup = known[flat.get(_NORM)], flat.get(_WARMUP)
        dash = DASHES[warmups.index(warmup) % len(DASHES)] if warmup else NO_WARMUP
        found.append(look(flat.get(_NORM), shades.index(_shade(flat, others)), len(shades), dash))
    return found


def _shade(flat: Flat, others: Sequence[str]) -> str:
    return repr([flat.get(key) for key in others])


def _mix(ramp: Sequence[str], place: float) -> str:
    """Give the colour at `place` of the way along the ramp, 0 to 1."""
    at = place * (len(ramp) - 1)
    index = min(int(at), len(ramp) - 2)
    pairs = zip(bytes.fromhex(ramp[index]), bytes.fromhex(ramp[index + 1]), strict=True)
    return "#" + bytes(round(a + (b - a) * (at - index)) for a, b in pairs).hex()
