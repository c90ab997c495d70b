"""The one rule of colour, dash and marker: what is told apart, by whom, and on what ground."""

from __future__ import annotations

import colorsys
from collections.abc import Sequence
from itertools import product

import pytest

from lnexp.report.look import DASHES, NO_WARMUP, Look, looks

# Dichromats' confusion, on linear RGB (Viénot, Brettel and Mollon 1999, for protan and deutan vision).
DICHROMAT = {
    "protan": ((0.11238, 0.88762, 0), (0.11238, 0.88762, 0), (0.00401, -0.00401, 1)),
    "deutan": ((0.29275, 0.70725, 0), (0.29275, 0.70725, 0), (-0.02234, 0.02234, 1)),
}
PAGE, DARK_PAGE = "#ffffff", "#1a1c1f"


def flats(norms: Sequence[str], warmups: Sequence[int], rates: Sequence[float]) -> list[dict[str, object]]:
    return [
        {"model.norm": norm, "schedule.warmup_updates": warmup, "optim.lr": rate}
        for norm, warmup, rate in product(norms, warmups, rates)
    ]


def linear(colour: str) -> list[float]:
    """Give linear RGB, 0 to 1 (sRGB's transfer function)."""
    parts = [value / 255 for value in bytes.fromhex(colour[1:])]
    return [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]


def luminance(colour: str) -> float:
    return sum(w * p for w, p in zip((0.2126, 0.7152, 0.0722), linear(colour), strict=True))


def contrast(one: str, other: str) -> float:
    """Give the contrast ratio of WCAG 2."""
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


FIG_2 = flats(["post"], [0, 500, 4000], [5e-4, 1e-3])
TWELVE = flats(["post", "pre"], [0, 500, 4000], [5e-4, 1e-3])


def in_grey(look: Look) -> tuple[object, ...]:
    return look.dash, look.shape, look.hollow


@pytest.mark.parametrize("some", [FIG_2, TWELVE, flats(["post", "pre"], [0, 100, 200, 300, 400], [1, 2, 3, 4, 5])])
def test_dash_and_marker_alone_tell_lines_apart(some: list[dict[str, object]]) -> None:
    found = looks(some)
    assert len({in_grey(look) for look in found}) == len(found)


def test_colour_says_the_model_and_dash_the_warm_up() -> None:
    for flat, look in zip(TWELVE, looks(TWELVE), strict=True):
        red, green, blue = bytes.fromhex(look.light[1:])
        hue = colorsys.rgb_to_hls(red, green, blue)[0] * 360
        assert (hue < 45) if flat["model.norm"] == "post" else (195 < hue < 245)
        assert look.hollow == (flat["model.norm"] == "pre")
        assert look.dash == {0: NO_WARMUP, 500: DASHES[1], 4000: ()}[flat["schedule.warmup_updates"]]
    shades = [look.light for look in looks(FIG_2)]
    assert shades[0] == shades[2] == shades[4] != shades[1] == shades[3] == shades[5]


def test_a_configuration_keeps_its_look_beside_others_of_its_shades() -> None:
    both, post = looks(TWELVE), looks(TWELVE[:6])
    assert both[:6] == post


def test_warm_ups_beyond_the_dashes_are_shades_too() -> None:
    found = looks(flats(["pre"], [0, 1, 2, 3, 4, 5], [1e-3]))
    assert len({look.light for look in found}) == 6 and found[0].dash == NO_WARMUP


def test_every_shade_stands_out_from_its_ground() -> None:
    """WCAG 2.1, 1.4.11: graphics need 3 to 1."""
    many = flats(["post", "pre", "other"], [0], range(9))
    for look in looks(many):
        assert contrast(look.light, PAGE) >= 3 and contrast(look.dark, DARK_PAGE) >= 3


def test_pre_ln_is_the_darker_one_in_grey() -> None:
    post, pre = looks(flats(["post", "pre"], [400], [1e-3]))
    assert contrast(post.light, pre.light) > 1.8


@pytest.mark.parametrize("kind", DICHROMAT)
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_colour_blind_readers_tell_the_models_apart(kind: str, theme: str) -> None:
    """Every shade of Post-LN stays yellowish and every one of Pre-LN bluish to protan and deutan eyes."""
    for flat, look in zip(TWELVE, looks(TWELVE), strict=True):
        colour = linear(getattr(look, theme))
        red, _, blue = (sum(w * c for w, c in zip(row, colour, strict=True)) for row in DICHROMAT[kind])
        assert (red > 1.3 * blue) if flat["model.norm"] == "post" else (blue > 1.3 * red)


def test_what_is_not_known_still_has_a_look() -> None:
    (look,) = looks([{}])
    assert look.dash == NO_WARMUP and not look.hollow and looks([]) == []
