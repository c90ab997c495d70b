"""The clock adds up whatever is nested in whatever, costs next to nothing; peaks and failed allocations are seen."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest

from lnexp import memory, timing
from lnexp.timing import OTHER, PARTS, Clock


class _Time:
    now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def at(monkeypatch: pytest.MonkeyPatch) -> _Time:
    """A time that stands still until it is set."""
    now = _Time()
    monkeypatch.setattr(timing, "perf_counter", now)
    return now


def test_parts_are_exclusive_and_add_up(at: _Time) -> None:
    clock = Clock()
    at.now += 1
    with clock("optimizer"):
        at.now += 2
        with clock("forward"):
            at.now += 4
        at.now += 8
        with clock("backward"):
            at.now += 16
            with clock("backward"):  # a part within itself counts once
                at.now += 32
    at.now += 64
    expected = {OTHER: 65.0, "optimizer": 10.0, "forward": 4.0, "backward": 48.0}
    assert clock.seconds() == dict.fromkeys(PARTS, 0.0) | expected
    assert sum(clock.seconds().values()) == at.now - 100


def test_a_part_ends_with_what_breaks_it(at: _Time) -> None:
    clock = Clock()
    with pytest.raises(ValueError, match="x"), clock("scoring"), clock("decoding"):
        at.now += 3
        raise ValueError("x")
    at.now += 5
    assert {k: v for k, v in clock.seconds().items() if v} == {"decoding": 3.0, OTHER: 5.0}


def test_a_clock_within_a_part_can_be_read(at: _Time) -> None:
    clock = Clock()
    with clock("checkpointing"):
        at.now += 2
        assert clock.seconds()["checkpointing"] == 2
        at.now += 2
    assert clock.seconds()["checkpointing"] == 4


def test_what_was_counted_before_a_restart_is_added(at: _Time) -> None:
    clock = Clock()
    with clock("startup"):
        at.now += 1
    clock.add({"startup": 2.0, "forward": 30.0})
    assert clock.seconds()["startup"] == 3 and clock.seconds()["forward"] == 30


def test_a_misspelt_part_is_no_part() -> None:
    with pytest.raises(KeyError), Clock()("fowrard"):
        pass


def test_the_clock_costs_under_a_thousandth_of_an_update() -> None:
    """An update has 6 parts; the smallest of any interest takes 20 ms."""
    clock, n = Clock(), 2000
    best = float("inf")
    for _ in range(5):
        began = time.perf_counter()
        for _ in range(n):
            with clock("forward"):
                pass
        best = min(best, (time.perf_counter() - began) / n)
    assert 6 * best < 0.020 / 1000


def test_the_record(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timing, "peak_rss_mib", lambda: 512.25)
    seconds = dict.fromkeys(PARTS, 0.0) | {"data": 1.0, "forward": 3.0, "backward": 5.0, "optimizer": 1.0, "startup": 6}
    found = timing.costs(seconds, 7, 2000.0, None)
    assert found["wall_s"] == 16 and found["share"]["forward"] == 0.1875 and found["tokens_per_s"] == 200
    assert (found["updates"], found["target_tokens"], found["peak_rss_mib"]) == (7, 2000, 512.2)
    assert found["peak_device_mib"] is None
    flat = timing.flat(found)
    assert flat["timing/tokens_per_s"] == 200 and flat["timing/share/backward"] == 0.3125
    assert not any(isinstance(value, dict) for value in flat.values())


def test_nothing_trained_is_no_speed() -> None:
    assert timing.costs(dict.fromkeys(PARTS, 0.0) | {OTHER: 1.0}, 0, 0.0, 2.0)["tokens_per_s"] is None


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc and forgets a peak")
def test_the_peak_is_what_was_taken_and_can_be_begun_anew() -> None:
    """64 MiB, in a process that inherits nothing from this larger one."""
    code = (
        "from lnexp import memory; before = memory.peak_rss_mib(); taken = bytearray(64 << 20); high = "
        "memory.peak_rss_mib(); del taken; memory.forget_peak(); print(before, high, memory.peak_rss_mib())"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    before, high, after = map(float, out.split())
    assert 62 < high - before < 66 and 62 < high - after < 66


@pytest.mark.parametrize("unit", [("darwin", 300 * 2**20), ("linux", 300 * 2**10)])
def test_the_unit_of_the_system(monkeypatch: pytest.MonkeyPatch, unit: tuple[str, int]) -> None:
    monkeypatch.setattr(memory, "Path", lambda _: Path("/no/such/file"))  # a system without /proc
    monkeypatch.setattr(memory.sys, "platform", unit[0])
    monkeypatch.setattr(memory.resource, "getrusage", lambda _: type("Usage", (), {"ru_maxrss": unit[1]}))
    assert memory.peak_rss_mib() == 300


# Word for word from torch 2.13: the CPU's allocator, CUDA's (OutOfMemoryError is a RuntimeError).
REFUSALS = (
    RuntimeError("[enforce fail at alloc_cpu.cpp:127] err == 0. DefaultCPUAllocator: can't allocate memory: you tried "
                 "to allocate 4503599627370496 bytes. Error code 12 (Cannot allocate memory)"),
    RuntimeError("CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 139.00 GiB"),
    MemoryError(),
)  # fmt: skip


@pytest.mark.parametrize("refusal", REFUSALS)
def test_a_failed_allocation_names_the_mend(refusal: Exception) -> None:
    with (
        pytest.raises(MemoryError, match=r"^update 3 is out of memory; set x$") as caught,
        memory.bounded("update 3", "set x"),
    ):
        raise refusal
    assert caught.value.__cause__ is refusal


def test_the_allocator_of_this_torch_is_understood() -> None:
    torch = pytest.importorskip("torch")
    with pytest.raises(MemoryError, match="out of memory"), memory.bounded("this", "that"):
        torch.empty(2**50)


@pytest.mark.parametrize("error", [RuntimeError("shapes do not fit"), ValueError("out of memory")])
def test_other_errors_stay_what_they_are(error: Exception) -> None:
    with pytest.raises(type(error)) as caught, memory.bounded("this", "that"):
        raise error
    assert caught.value is error
