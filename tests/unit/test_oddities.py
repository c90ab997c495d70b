"""Oddities of raw text: each kind on what it is for and on what it must let be; shifts, planted and real; repeats."""

from __future__ import annotations

import gzip
import json
import pickle
import random
import re
import time
from pathlib import Path

import numpy as np
import pytest

import lnexp
from lnexp.data import oddities

Pairs = list[tuple[str, str]]
SHIPPED = Path(lnexp.__file__).parent / "data" / "shipped" / "tatoeba_deen"
SHARED = Path(lnexp.__file__).parents[2] / "shared" / "data"


def shipped(split: str) -> Pairs:
    sides = [gzip.open(SHIPPED / f"{split}.{lang}.gz", "rt", encoding="utf-8").read() for lang in ("de", "en")]
    return list(zip(*(side.split("\n")[:-1] for side in sides), strict=True))


def shared(folder: str, name: str) -> Pairs:
    """Read a text of the machine's shared folder: lines, or the <seg> of an IWSLT set."""
    if not SHARED.is_dir():
        pytest.skip(f"no {SHARED}: the published texts are not part of the repository")
    if folder == "iwslt14-de-en":
        texts = [
            (SHARED / folder / "orig" / f"IWSLT14.{name}.de-en.{lang}.xml").read_text(encoding="utf-8")
            for lang in ("de", "en")
        ]
        return list(zip(*(re.findall(r"<seg id[^>]*>\s*(.*?)\s*</seg>", text) for text in texts), strict=True))
    texts = [(SHARED / folder / f"{name}.{lang}").read_text(encoding="utf-8") for lang in ("de", "en")]
    return list(zip(*(text.split("\n")[:-1] for text in texts), strict=True))


def kinds(src: str, tgt: str) -> set[str]:
    return set(oddities.observe(1, [(src, tgt)]))


LONG = "ein Satz von gewöhnlicher Länge, der nichts Besonderes hat"


@pytest.mark.parametrize(
    ("src", "tgt", "kind"),
    [
        ("", "x", "empty"),
        ("x", " \xa0 ", "empty"),
        ("Please do not translate this.", "Please  do not translate this. ", "copied"),
        ("我们明天一起去看电影吧", "我们明天一起去看电影吧", "copied"),
        ("Ein kurzer.", LONG, "unequal"),
        ("Es waren 120 Leute da.", "There were 150 people.", "numbers"),
        ("Im Jahr 1990.", "In the year 2090.", "numbers"),
        ("a\rb", "c", "control"),
        ("a", "c\x93d", "control"),
        ("a\x07b", "c", "control"),
        ("so\xadfort", "c", "invisible"),
        ("a\u200bb", "c", "invisible"),
        ("a", "b\ufeffc", "invisible"),
        ("Stra\ufffde", "street", "replacement"),
        ("FuÃŸball fÃ¼r alle", "football for all", "mojibake"),
        ("a", "itâ€™s", "mojibake"),
        ("a", "it\xe2\x80\x99s", "mojibake"),
        ("ÐŸÑ€Ð¸Ð²ÐµÑ‚", "hello", "mojibake"),
        ("20 Â°C", "20 °C", "mojibake"),
        ("Q &amp; A", "c", "markup"),
        ("a", "&#39;c&quot;", "markup"),
        ("<p>a</p>", "c", "markup"),
        ('a <a href="x">b', "c", "markup"),
        ("a<br />b", "c", "markup"),
        ("a\u2028b", "c", "separator"),
        ("a", "b\x85c", "separator"),
        ("Vous\xa0?", "You?", "spaces"),
        ("a\tb", "c", "spaces"),
    ],
)
def test_a_kind_is_seen(src: str, tgt: str, kind: str) -> None:
    assert kind in kinds(src, tgt)
    ((number, *sides),) = oddities.observe(17, [(src, tgt)])[kind]["examples"]
    assert (number, *sides) == (17, src, tgt)


@pytest.mark.parametrize(
    ("src", "tgt"),
    [
        (LONG, "a sentence of ordinary length that has nothing special about it"),
        ("Ja.", "Yes, of course I would like to come along with you tomorrow."),
        ("Ludwig Mies van der Rohe", "Ludwig Mies van der Rohe"),
        ("1 2 3 4 5", "1 2 3 4 5"),
        ("Tom Mary Boston New York", "Tom Mary Boston New York"),
        ("习近平", "习近平"),
        ("Es kostet 1.234,50 Euro.", "It costs 1,234.50 euros."),
        ("1,5 Millionen", "1,500,000"),
        ("in den 90er Jahren", "in the 1990s"),
        ("am 05.06.2010", "on June 5, 2010"),
        ("um 14:30 Uhr", "at 2:30"),
        ("12 Leute", "twelve people"),
        ("Â ÂGE, SÃO PAULO, NÃO, ROMÂNIA", "Ñandú, ÐE, €20, Ÿ"),
        ("AT&T und R&D; x < y > z", "a <b and c> d, me@x.org, <3"),
        ("می‌خواهم", "👩‍🔬 “quotes” – and … ’s"),
    ],
)
def test_what_is_no_oddity(src: str, tgt: str) -> None:
    assert kinds(src, tgt) == set()


def test_unequal_is_measured_by_what_is_usual() -> None:
    dense: Pairs = [("字" * 15, "some letters " * 4)] * 40
    assert "unequal" not in oddities.observe(1, dense)
    seen = oddities.observe(1, [*dense, ("字" * 15, "some letters of it " * 10)])
    assert seen["unequal"]["count"] == 1 and seen["unequal"]["examples"][0][0] == 41


def test_examples_are_few_and_short_and_show_what_was_found() -> None:
    seen = oddities.observe(5, [("x" * 1000 + "\x07" + "y" * 1000, "z" * 999)] * 9)
    assert seen["control"]["count"] == 9
    assert [number for number, _, _ in seen["control"]["examples"]] == [5, 6, 7]
    for _, src, tgt in seen["control"]["examples"]:
        assert len(src) == len(tgt) == 200 and "\x07" in src[:60]


def test_hostile_lines_are_cheap() -> None:
    begin = time.perf_counter()
    for bad in ("<a x=" + " " * 50_000, "<a " * 20_000, "<" * 50_000, "&a" * 20_000, "12 " * 20_000, "Ã" * 50_000):
        oddities.observe(1, [(bad, "34 " * 20_000)])
    assert time.perf_counter() - begin < 2  # measured: 0.3 s; a quadratic rule takes minutes


def test_merge_is_observe_by_chunks() -> None:
    pairs = [*shipped("valid")[:300], ("a\rb", "c"), *shipped("test")[:300], ("", "x"), ("<b>", "y"), ("d\re", "f")]
    parts = [oddities.observe(1 + k, pairs[k : k + 100]) for k in range(0, len(pairs), 100)]
    whole = oddities.merge(parts)
    assert whole == oddities.observe(1, pairs) == json.loads(json.dumps(pickle.loads(pickle.dumps(whole))))
    assert {name: entry["count"] for name, entry in whole.items()} == {"control": 2, "empty": 1, "markup": 1}
    assert [example[0] for example in whole["control"]["examples"]] == [301, 604]
    assert oddities.merge([]) == {} and oddities.observe(1, []) == {} and oddities.shifted([]) == []


def slip(pairs: Pairs, at: int, size: int, offset: int) -> Pairs:
    """Move the targets of `size` pairs up or down by taking those beside them out and in again at the other end."""
    tgt = [target for _, target in pairs]
    low, high = at + min(offset, 0), at + size + max(offset, 0)
    cut = abs(offset) if offset < 0 else high - low - offset
    tgt[low:high] = tgt[low:high][cut:] + tgt[low:high][:cut]
    return [(src, t) for (src, _), t in zip(pairs, tgt, strict=True)]


@pytest.mark.parametrize("offset", [-2, -1, 1, 2])
def test_a_planted_shift_is_found(offset: int) -> None:
    pairs, rng = shipped("valid"), random.Random(offset)
    for size in (40, 60, 100):  # the sentences are short and much alike: 6 words
        at = rng.randrange(10, 850)
        ((begin, end, found),) = oddities.shifted(slip(pairs, at, size, offset))
        begin -= 1
        assert found == offset and abs(begin - at) <= 8 and abs(end - at - size) <= 8


def test_a_split_that_slipped_as_a_whole_is_one_stretch_over_all_chunks() -> None:
    pairs = shipped("train")[:6000]
    late = [(src, tgt) for (src, _), (_, tgt) in zip(pairs[1:], pairs[:-1], strict=True)]
    whole = oddities.merge(oddities.observe(1 + k, late[k : k + 1500]) for k in range(0, len(late), 1500))
    ((begin, end, offset),) = whole["shifted"]["stretches"]
    assert (begin, offset) == (1, 1) and end > 5990 and whole["shifted"]["count"] > 5980


def test_shipped_text_is_clean() -> None:
    for split in ("train", "valid", "test"):
        pairs = shipped(split)
        seen = oddities.observe(1, pairs)
        assert "shifted" not in seen
        assert all(entry["count"] <= len(pairs) / 1000 for entry in seen.values())


def test_shifts_of_the_published_sets() -> None:
    """fairseq issue 4146: pairs 907 to 978 of TEDX.dev2012; 50-56 and 193-216 of it have slipped as well."""
    pairs = shared("iwslt14-de-en", "TEDX.dev2012")
    assert len(pairs) == 1165
    assert oddities.shifted(pairs) == [[50, 55, -1], [193, 215, 1], [909, 978, -1]]
    clean = [shared("iwslt14-de-en", "TED.dev2010"), *(shared("tatoeba-de-en", name) for name in ("valid", "test"))]
    assert [oddities.shifted(pairs) for pairs in clean] == [[], [], []]
    seen = oddities.observe(1, clean[0])
    assert all(entry["count"] <= 2 for entry in seen.values())


def test_marks_are_stable_and_blind_to_spaces() -> None:
    found = oddities.marks([("ein Haus", "a house"), ("  ein \xa0 Haus ", ""), ("\t", "Haus")])
    assert found.dtype == np.uint64 and found.shape == (3, 2)
    assert found[0, 0] == found[1, 0] and len(set(found.ravel().tolist())) == 4
    assert (found == 0).tolist() == [[False, False], [False, True], [True, False]]
    assert int(found[0, 1]) == 0x94C666355F0BF1E2
    assert oddities.marks([]).shape == (0, 2)


def test_repeats() -> None:
    train = [("a", "A"), ("b", "B"), ("a", "A"), ("a", "X"), ("", "E"), ("", "E")]
    valid = [("c", "C"), ("b", "B"), ("a", "B")]
    test = [("c", "C"), ("d", "X"), ("", ""), ("b", "Z")]
    marks = {name: oddities.marks(pairs) for name, pairs in (("test", test), ("valid", valid), ("train", train))}
    found = oddities.repeats(marks)
    assert json.loads(json.dumps(found)) == found and list(found) == ["train", "valid", "test"]
    numbers = {split: {k: v["numbers"] for k, v in entry.items() if v["count"]} for split, entry in found.items()}
    assert numbers == {
        "train": {"repeated_pair": [3], "repeated_source": [3, 4], "repeated_target": [3, 6]},
        "valid": {
            "repeated_target": [3],
            "in_train_pair": [2],
            "in_train_source": [2, 3],
            "in_train_target": [2, 3],
        },
        "test": {
            "in_valid_pair": [1],
            "in_valid_source": [1, 4],
            "in_valid_target": [1],
            "in_train_source": [4],
            "in_train_target": [2],
        },
    }
    empty = oddities.repeats({"train": oddities.marks([]), "test": marks["test"]})
    assert {k for k, v in empty["test"].items() if v["count"]} == set()
    many = oddities.repeats({"valid": oddities.marks([("a", "A")] * 9)})["valid"]["repeated_pair"]
    assert many == {"count": 8, "numbers": [2, 3, 4]}


def test_repeats_of_the_shipped_text() -> None:
    found = oddities.repeats({split: oddities.marks(shipped(split)) for split in ("train", "valid", "test")})
    assert all(entry["count"] == 0 for split in found.values() for entry in split.values())


def test_describe() -> None:
    pairs = [*slip(shipped("valid"), 100, 60, -1), ("a\x1b[31mb", "c"), ("&amp;", "y"), ("&lt;", "z")]
    seen = oddities.observe(1, pairs)
    repeated = {
        "repeated_pair": {"count": 1, "numbers": [4]},
        "in_train_source": {"count": 5, "numbers": [1, 2, 3]},
        "in_train_pair": {"count": 0, "numbers": []},
    }
    seen.pop("unequal", None)  # a line that slipped far can be that as well
    lines = oddities.describe("test", seen, repeated, len(pairs))
    assert len(lines) == 5 and all(line.startswith("test: ") for line in lines)
    assert re.search(r"^test: \d\d pairs in stretches .* \(\d\.\d\d%, pairs 1\d\d-1\d\d: 1 up\)$", lines[0])
    assert lines[1] == "test: 5 source sentences that train has too (0.50%, pair 1, 2, 3, ...)"
    assert lines[2].startswith("test: 1 pair with a control character")
    assert lines[2].endswith(r"pair 1001: a\x1b[31mb | c)")
    assert lines[3].startswith("test: 2 pairs with a tag or an entity") and "pair 1002: &amp; | y" in lines[3]
    assert lines[4] == "test: 1 pair that came before (0.10%, pair 4)"
    assert oddities.describe("train", {}) == []
