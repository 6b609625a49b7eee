"""Counting: times, errors and rates, without a server."""

from __future__ import annotations

import random

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import tidelog.engine.commands.execute  # noqa: F401  # registers the commands
from tidelog.engine.commands.table import TABLE
from tidelog.server.monitoring import stats as module
from tidelog.server.monitoring.calls import EVEN_NS, NS, Calls, new_histogram, place
from tidelog.server.monitoring.latency import Latency
from tidelog.server.monitoring.stats import NEVER_NS, Stats

DEFAULTS = {
    "slowlog-log-slower-than": 10_000,
    "slowlog-max-len": 128,
    "latency-monitor-threshold": 0,
}


def make(**options: int) -> Stats:
    return Stats({**DEFAULTS, **{name.replace("_", "-"): v for name, v in options.items()}})


def slow(stats: Stats, args: list[bytes], ns: int) -> None:
    stats.slow(TABLE.resolve(args), args, ns, "127.0.0.1:1234", b"me")


def test_calls_are_counted_by_command() -> None:
    stats = make()
    stats.call(b"xadd", 3_500, False)
    stats.call(b"xadd", 2_000_000, True)
    stats.calls(b"xadd", 10, 20_000, 1)
    stats.rejected(b"xlen")
    stats.rejected(b"")
    found = stats.by_command()
    assert set(found) == {b"xadd", b"xlen"}
    xadd = found[b"xadd"]
    assert (xadd.calls, xadd.us, xadd.failed, xadd.rejected) == (12, 2_023, 2, 0)
    assert (found[b"xlen"].calls, found[b"xlen"].rejected) == (0, 1)
    assert stats.commands == 12
    stats.reset()
    assert not stats.by_command() and stats.commands == 0


def test_no_calls_are_none() -> None:
    stats = make()
    stats.calls(b"xadd", 0, 0, 0)
    assert not stats.by_command()


@given(st.lists(st.integers(0, 3 * EVEN_NS) | st.integers(0, 2**63), min_size=1, max_size=20))
@example([0, 1, 1023, 1024, EVEN_NS - 1])
@example([EVEN_NS - 1, EVEN_NS, EVEN_NS + 1, 10**12, 2**63])
def test_calls_count_where_place_says(times: list[int]) -> None:
    stats = make()
    expected = new_histogram()
    for ns in times:
        stats.call(b"x", ns, False)
        expected[NS] += ns
        expected[place(ns)] += 1
    assert stats.commands == len(times)
    assert stats.by_command()[b"x"].calls == len(times) == stats.commands
    assert stats._rows[b"x"] == expected


def test_percentiles_are_close_and_never_too_low() -> None:
    rng = random.Random(7)
    times = [int(rng.lognormvariate(11, 3)) for _ in range(5_000)]
    row = new_histogram()
    for ns in times:
        row[place(ns)] += 1
    calls = Calls(row)
    times.sort()
    for percent in (0.1, 50, 90, 99, 99.9, 100):
        exact = times[max(0, -int(-len(times) * percent // 100) - 1)]
        found = calls.percentile(percent) * 1000
        assert exact <= found <= max(exact * 17 / 16, exact + 1024)
    assert Calls(new_histogram()).percentile(50) == 0.0


def test_a_histogram_is_exact_and_has_the_bounds_of_redis() -> None:
    rng = random.Random(8)
    times = [rng.randrange(1 << rng.randrange(8, 32)) for _ in range(3_000)]
    row = new_histogram()
    for ns in times:
        row[place(ns)] += 1
    pairs = Calls(row).histogram()
    bounds, counts = pairs[::2], pairs[1::2]
    # The bounds that LATENCY HISTOGRAM of Redis 7.0 shows for 1,024 ns and its doublings.
    known = [1, 2, 4, 8, 16, 33, 66, 132, 264, 528, 1056, 2113]
    assert bounds[: len(known)] == known
    for power, count in enumerate(counts, 10):
        assert count == sum(ns < 1 << power for ns in times)
    assert counts[-1] == len(times)


def test_a_histogram_leaves_out_what_does_not_change() -> None:
    row = new_histogram()
    for ns in (500, 700, 9_000, 40_000):
        row[place(ns)] += 1
    assert Calls(row).histogram() == [1, 2, 16, 3, 66, 4]


def test_errors_by_code() -> None:
    stats = make()
    for line in (b"ERR a", b"ERR b", b"NOGROUP no", b"ALONE"):
        stats.error(line)
    assert stats.by_error == {b"ERR": 2, b"NOGROUP": 1, b"ALONE": 1}
    assert stats.error_replies == 4


def test_too_many_codes_are_not_told_apart() -> None:
    stats = make()
    for number in range(300):
        stats.error(b"E%d x" % number)
    assert stats.by_error == {b"ERRORSTATS_DISABLED": 1}
    assert stats.error_replies == 300
    stats.reset()
    stats.error(b"ERR x")
    assert stats.by_error == {b"ERR": 1}


def test_rates_are_those_of_the_last_samples() -> None:
    stats = make()
    assert stats.rates() == (0, 0, 0)
    for tick in range(40):
        stats.sample(tick / 10)
        assert tick or stats.rates() == (0, 0, 0)
        stats.calls(b"ping", 10 if tick < 20 else 30, 1000, 0)
        stats.net_input_bytes += 100
        stats.net_output_bytes += 50
    rates = stats.rates()
    assert rates.commands == pytest.approx(300)
    assert rates.net_input_bytes == pytest.approx(1000)
    assert rates.net_output_bytes == pytest.approx(500)


def test_what_was_before_a_gap_is_no_rate() -> None:
    stats = make()
    stats.sample(0.0)
    stats.calls(b"ping", 1_000, 1_000, 0)
    stats.sample(0.1)
    assert stats.rates().commands == pytest.approx(10_000)
    stats.sample(0.1 + module.SAMPLE_GAP_S + 1)
    assert stats.rates().commands == 0


def test_late_fsyncs_are_counted_once_each() -> None:
    stats = make()
    for tick, late in enumerate([False, True, True, False, True, False]):
        stats.sample(tick / 10, late)
    assert stats.delayed_fsyncs == 2


@pytest.mark.parametrize(
    ("slow_us", "event_ms", "threshold"),
    [
        (10_000, 0, 10_000_000),
        (-1, 0, NEVER_NS),
        (0, 0, 0),
        (-1, 5, 5_000_000),
        (9_000, 5, 5_000_000),
    ],
)
def test_what_is_shown_to_the_slow_log(slow_us: int, event_ms: int, threshold: int) -> None:
    stats = make(slowlog_log_slower_than=slow_us, latency_monitor_threshold=event_ms)
    assert stats.slow_ns == threshold


def test_both_thresholds_hold() -> None:
    stats = make(slowlog_log_slower_than=20_000, latency_monitor_threshold=5)
    slow(stats, [b"XADD", b"s", b"*", b"f", b"v"], 7_000_000)
    assert len(stats.slowlog) == 0
    assert list(stats.latency.events) == [b"fast-command"]
    slow(stats, [b"KEYS", b"*"], 25_000_000)
    (entry,) = stats.slowlog.latest(10)
    assert entry[0] == 0 and entry[2:] == (25_000, [b"KEYS", b"*"], b"127.0.0.1:1234", b"me")
    assert stats.latency.events[b"command"].max_ms == 25


def test_the_slow_log_keeps_the_latest() -> None:
    stats = make(slowlog_max_len=3)
    for number in range(5):
        slow(stats, [b"GET", b"%d" % number], 10**9)
    assert [entry.args for entry in stats.slowlog.latest(2)] == [[b"GET", b"4"], [b"GET", b"3"]]
    assert [entry.id for entry in stats.slowlog.latest(9)] == [4, 3, 2]
    stats.slowlog.set_max(1)
    assert [entry.id for entry in stats.slowlog.latest(9)] == [4]
    stats.slowlog.clear()
    slow(stats, [b"GET", b"x"], 10**9)
    assert stats.slowlog.latest(9)[0].id == 5


def test_latency_events(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 1000
    monkeypatch.setattr("time.time", lambda: now)
    latency = Latency()
    latency.command(TABLE.commands[b"keys"], 20_000_000)
    assert not latency.events  # the threshold is 0: off
    latency.threshold_ms = 10
    latency.command(TABLE.commands[b"keys"], 9_999_999)
    latency.command(TABLE.commands[b"keys"], 20_000_000)
    latency.command(TABLE.commands[b"keys"], 30_000_000)
    latency.command(TABLE.commands[b"keys"], 12_000_000)
    now = 1010
    latency.command(TABLE.commands[b"keys"], 10_000_000)
    latency.command(TABLE.commands[b"xadd"], 50_000_000)
    keys = latency.events[b"command"]
    assert list(keys.samples) == [(1000, 30), (1010, 10)] and keys.max_ms == 30
    assert latency.events[b"fast-command"].max_ms == 50
    assert latency.reset([b"command", b"command", b"nothing"]) == 1
    assert latency.reset([]) == 1 and not latency.events
