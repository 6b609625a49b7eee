"""The clock by itself: what it shows, how it is moved, whom it tells."""

from __future__ import annotations

import gc
import threading
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import tidelog
from tidelog.store.clock import Clock as Protocol
from tidelog.testing import Clock


class Listener:
    def __init__(self, clock: Clock, seen: list[Any], name: str = "") -> None:
        self.clock, self.seen, self.name = clock, seen, name
        clock.ticked(self.told)

    def told(self) -> None:
        self.seen.append((self.name, self.clock.now(), threading.get_ident()))


class Raiser:
    def __init__(self, clock: Clock) -> None:
        clock.ticked(self.told)

    def told(self) -> None:
        raise ValueError("told")


def test_it_stands_still_until_it_is_moved() -> None:
    clock: Protocol = Clock()
    assert clock.manual
    before = clock.time_ns(), clock.monotonic()
    assert (clock.time_ns(), clock.monotonic()) == before


def test_it_starts_where_it_is_told() -> None:
    assert Clock().now() == datetime(2026, 1, 1, tzinfo=UTC)
    east = timezone(timedelta(hours=9))
    clock = Clock(datetime(2024, 2, 29, 12, 30, 1, 234567, tzinfo=east))
    assert clock.now() == datetime(2024, 2, 29, 3, 30, 1, 234567, tzinfo=UTC)
    assert clock.now().tzinfo is UTC
    assert clock.time_ns() == 1_709_177_401_234_567_000
    assert repr(clock) == "<Clock at 2024-02-29T03:30:01.234567+00:00>"


def test_advance_moves_both_clocks_and_jump_the_wall_clock_alone() -> None:
    clock = Clock()
    now, monotonic = clock.now(), clock.monotonic()
    clock.advance(90.5)
    assert clock.now() - now == timedelta(seconds=90.5)
    assert clock.monotonic() - monotonic == pytest.approx(90.5)
    monotonic = clock.monotonic()
    clock.jump(3600)
    assert clock.now() - now == timedelta(seconds=3690.5)
    clock.jump(-7200)
    assert clock.now() - now == timedelta(seconds=-3509.5)
    clock.advance(0)
    assert clock.monotonic() == monotonic


@pytest.mark.parametrize("start", [datetime(2026, 1, 1), "2026-01-01", 0, 1767225600.0])
def test_a_start_that_says_no_moment_is_refused(start: Any) -> None:
    with pytest.raises(tidelog.DataError, match="start must be a datetime with a time zone"):
        Clock(start)


def test_a_start_before_1970_is_refused() -> None:
    with pytest.raises(tidelog.DataError, match="1970 or later"):
        Clock(datetime(1969, 12, 31, tzinfo=UTC))


@pytest.mark.parametrize("seconds", [-1, -0.001, -1e-12])
def test_advance_refuses_to_go_back(seconds: float) -> None:
    clock = Clock()
    before = clock.time_ns(), clock.monotonic()
    with pytest.raises(tidelog.DataError, match="time cannot run backwards; use jump"):
        clock.advance(seconds)
    assert (clock.time_ns(), clock.monotonic()) == before


@pytest.mark.parametrize("seconds", [float("nan"), float("inf"), "1", None, timedelta(seconds=1)])
def test_what_is_no_number_of_seconds_is_refused(seconds: Any) -> None:
    clock = Clock()
    for move in (clock.advance, clock.jump):
        with pytest.raises(tidelog.DataError, match="seconds must be a finite number"):
            move(seconds)


def test_a_clock_stays_within_the_years_it_can_show() -> None:
    clock = Clock()
    before = clock.time_ns(), clock.monotonic()
    for move, seconds in ((clock.jump, -60e9), (clock.jump, 1e12), (clock.advance, 1e12)):
        with pytest.raises(tidelog.DataError, match="the years 1970 to 9999"):
            move(seconds)
    assert (clock.time_ns(), clock.monotonic()) == before


seconds = st.one_of(
    st.integers(0, 10**8), st.integers(0, 10**6).map(lambda ms: ms / 1000), st.floats(0, 1e8)
)


@given(before=st.lists(seconds, max_size=5), wait=seconds, pieces=st.integers(1, 20))
def test_a_deadline_is_reached_when_so_much_time_has_passed(
    before: list[float], wait: float, pieces: int
) -> None:
    clock = Clock()
    for each in before:
        clock.advance(each)
    deadline = clock.monotonic() + wait
    for _ in range(pieces):
        clock.advance(wait / pieces)
    assert clock.monotonic() >= deadline
    assert clock.monotonic() - deadline < 1e-4


def test_milliseconds_add_up_exactly() -> None:
    clock = Clock()
    for n in range(1, 1001):
        clock.advance(0.001)
        assert clock.time_ns() // 1_000_000 == 1_767_225_600_000 + n


def test_listeners_are_told_in_the_movers_thread_after_the_time_has_moved() -> None:
    clock = Clock()
    seen: list[Any] = []
    listeners = [Listener(clock, seen, name) for name in "abc"]
    clock.advance(1)
    clock.jump(-10)
    times = clock.now() + timedelta(seconds=10), clock.now()
    me = threading.get_ident()
    assert seen == [(listener.name, at, me) for at in times for listener in listeners]


def test_listeners_are_held_weakly() -> None:
    clock = Clock()
    seen: list[Any] = []
    listener = Listener(clock, seen)
    clock.advance(1)
    del listener
    gc.collect()
    clock.advance(1)
    assert len(seen) == 1 and not clock._callbacks


def test_a_listener_that_raises_keeps_nobody_from_being_told() -> None:
    clock = Clock()
    seen: list[Any] = []
    listeners = [Listener(clock, seen, "a"), Raiser(clock), Listener(clock, seen, "b")]
    with pytest.raises(ValueError, match="told"):
        clock.advance(1)
    assert [name for name, *_ in seen] == ["a", "b"]
    del listeners


def test_many_threads_may_move_it() -> None:
    clock = Clock()
    start = threading.Barrier(8)
    kept: list[Listener] = []

    def move() -> None:
        start.wait(120)
        for _ in range(200):
            kept.append(Listener(clock, []))
            clock.advance(0.001)
            clock.jump(0.002)
            kept.pop()

    threads = [threading.Thread(target=move) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert clock.now() == datetime(2026, 1, 1, 0, 0, 4, 800_000, tzinfo=UTC)
