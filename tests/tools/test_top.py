"""tidelog top: one look as tables and JSON, the screens by a headless pilot, a store beside its writer, a server."""

from __future__ import annotations

import asyncio
import fcntl
import json
import os
import pty
import re
import select
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.tools.conftest import Run, expect
from tests.tools.made import T0, Made
from tests.tools.queue_made import mails
from tests.until import PATIENCE_S
from textual.pilot import Pilot
from textual.widgets import Input, Static

import tidelog
from tidelog.engine.api import DbKey
from tidelog.figures.model import StreamFigures
from tidelog.testing import Clock
from tidelog.tools import exits, installed
from tidelog.tools.importing.link import Link, ServerError
from tidelog.tools.text import span
from tidelog.tools.top.app import Top
from tidelog.tools.top.command import source_of
from tidelog.tools.top.look import Look, Rates, ranked
from tidelog.tools.top.server import STREAMS_ASKED, Server
from tidelog.tools.top.table import Table
from tidelog.tools.top.words import oldest


@pytest.fixture
def store(tmp_path: Path) -> Path:
    with mails(tmp_path / "orders-data", Clock()):
        pass
    return tmp_path / "orders-data"


def without_ages(text: str) -> str:
    """Ages are counted from now."""
    return re.sub(r" +\d+d\d\dh", "  AGE", text)


# --- one look


def test_output(run: Run, store: Path) -> None:
    done = run("top", store, "--once")
    assert (done.code, done.err) == (0, "")
    expect("top.txt", without_ages(done.out), store)


def test_json(run: Run, store: Path) -> None:
    told = json.loads(run("top", store, "--json", "--filter", "mails", "--sort", "key").out)
    assert [row["key"] for row in told["streams"]] == [
        "mails",
    ]
    told = json.loads(run("top", store, "--json", "--helpers", "--filter", "mails").out)
    assert {row["key"] for row in told["streams"]} == {
        *("mails", "mails:dead", "mails:failures", "mails:holds"),
    }
    told = json.loads(run("top", store, "--json", "--filter", "mails", "--sort", "key").out)
    row = told["streams"][0]
    assert (row["length"], row["added"], row["lag"], row["pending"]) == (5, 8, 3, 2)
    (group,) = row["groups"]
    assert (group["name"], group["read"], group["lag"], group["pending"]) == ("workers", 5, 3, 2)
    assert [one["name"] for one in group["consumers"]] == ["worker-1", "worker-2", "worker-3"]
    assert {row["key"] for row in told["queues"]} == {"mails", "orders"}
    assert told["facts"]["last_lsn"] == 35
    assert told["facts"]["exposed_bytes"] is None  # only the writer knows


def test_count_and_sort(run: Run, store: Path) -> None:
    done = run("top", store, "--once", "--count", 1, "--sort", "length")
    assert "mails " in done.out and "and 1 streams more" in done.out


def test_rates_need_two_looks(run: Run, store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidelog.tools.top.command.RATE_SECONDS", 0.01)
    told = json.loads(run("top", store, "--json", "--rates").out)
    assert {row["added_per_s"] for row in told["streams"]} == {0.0}
    told = json.loads(run("top", store, "--json").out)
    assert {row["added_per_s"] for row in told["streams"]} == {None}


def test_a_snapshot(run: Run, tmp_path: Path) -> None:
    with tidelog.open(tmp_path / "db") as db:
        db.xadd("s", {"n": 1})
        made = db.snapshot()
    told = json.loads(run("top", made.path, "--json").out)
    assert [row["key"] for row in told["streams"]] == ["s"]
    assert told["facts"]["durable_lsn"] is None


def test_cold_streams_keep_their_figures(tmp_path: Path) -> None:
    root = tmp_path / "db"
    with tidelog.open(root, fsync="no") as db:
        for n in range(20):
            db.xadd(f"s{n}", {"n": n})
        db.checkpoint()
        db.xadd("s3", {"n": 4})
        source = source_of(str(root))
        try:
            first = {row.key: row for row in source.look(()).streams}
            db.xadd("s5", {"n": 6})
            db.delete("s7")
            second = {row.key: row for row in source.look(()).streams}
            db.xadd("s5", {"n": 7})
            db.checkpoint()  # what was read so far is read anew
            db.xadd("s9", {"n": 9})
            third = {row.key: row for row in source.look(()).streams}
        finally:
            source.close()
    assert len(first) == 20 and (first[b"s3"].length, first[b"s5"].length) == (2, 1)
    assert set(first) - set(second) == {b"s7"}
    assert (second[b"s5"].length, second[b"s4"]) == (2, replace(first[b"s4"], added_per_s=0.0))
    assert second[b"s5"].added_per_s
    assert (third[b"s5"].length, third[b"s9"].length, third[b"s3"].length) == (3, 2, 2)


@pytest.mark.parametrize(
    ("args", "code", "text"),
    [
        (["none"], exits.NOT_A_STORE, "none is not a tidelog store"),
        (["redis://127.0.0.1:1"], exits.SYSTEM, "127.0.0.1:1"),
        (["ftp://x"], exits.USAGE, "the scheme of a URL must be one of"),
    ],
)
def test_errors(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, args: list[str], code: int, text: str
) -> None:
    monkeypatch.chdir(tmp_path)
    done = run("top", *args, "--once")
    assert (done.code, done.out) == (code, "") and text in done.err


def test_without_textual(run: Run, store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(installed, "find_spec", lambda name: None)
    done = run("top", store)
    assert (done.code, done.err) == (
        exits.SYSTEM,
        "tidelog: tidelog top needs textual; install with: pip install 'tidelog[top]'\n",
    )
    assert run("top", store, "--once").code == 0
    assert run("top", store, "--rates").code == exits.USAGE


# --- delayed jobs and schedules


def test_due_times(run: Run, served: tuple[tidelog.Store, str], tmp_path: Path) -> None:
    """The delivery times of these groups are in the past by a constant, and mean when a job or a tick is due."""
    db, url = served
    mails = db.queue("mails")
    mails.put("later", delay=9 * 86_400 + 30)
    mails.put("first", delay=3 * 3600 + 30)
    mails.put("now")
    db.schedule("nightly", every=7200, queue="mails", value=1)
    assert mails.get("worker-1", block=0) is not None
    for place in (tmp_path / "db", url):
        out = run("top", place, "--once", "--helpers", "--sort", "oldest").out
        assert re.search(r"\nmails:later +2 .* due in 3h00m\n", out), out
        assert re.search(r"\nmails:later +due .* due in 3h00m +1\n", out), out
        assert re.search(r"\ntidelog:schedules .* due in (1h59m|2h00m)\n", out), out
        assert re.search(r"OLDEST\nmails ", out), out  # the only ones with a delivery are first
        told = json.loads(run("top", place, "--json", "--helpers", "--filter", ":later").out)
        (row,) = told["streams"]
        assert row["oldest_ms"] is None and row["groups"][0]["oldest_ms"] is None
        # a server tells how long ago it was, which is counted from two moments
        assert abs(row["due_ms"] - row["groups"][0]["due_ms"]) < PATIENCE_S * 1000
        assert 0 < row["due_ms"] - told["time_ms"] <= 3 * 3_600_000 + 30_000


def test_a_due_time_in_words() -> None:
    assert oldest(replace(row("a", 0, 1), due_ms=T0 + 61_000), T0) == "due in 1m"
    assert oldest(replace(row("a", 0, 1), due_ms=T0 - 61_000), T0) == "due 1m ago"
    assert oldest(replace(row("a", 0, 1, T0 - 5000), due_ms=T0 - 61_000), T0) == "5s"


# --- order and rates


def row(key: str, lag: int | None, pending: int, oldest: int | None = None) -> StreamFigures:
    return StreamFigures(0, key.encode(), pending, 0, None, 1, lag, pending, oldest)


def test_the_most_urgent_comes_first() -> None:
    rows = [row("a", 1, 7, 50), row("b", None, 9, 20), row("c", 5, 7), row("ab", 0, 0)]

    def keys(sort: str, *, reverse: bool = False, wanted: str = "") -> str:
        found = ranked(rows, sort, reverse=reverse, wanted=wanted)
        return " ".join(each.key.decode() for each in found)

    assert keys("lag") == "c a ab b"
    assert keys("pending") == "b a c ab"
    assert keys("oldest") == "b a ab c"
    assert keys("key") == "a ab b c"
    assert keys("key", reverse=True) == "c b ab a"
    assert keys("lag", wanted="b") == "ab b"


def test_rates() -> None:
    rates = Rates()
    assert rates.of("s", 10, 1000) is None
    assert rates.of("s", 30, 3000) == 10.0
    assert rates.of("s", 5, 4000) is None  # it was made anew
    assert rates.of("s", 6, 4000) is None
    assert rates.of("t", None, 4000) is None


@pytest.mark.parametrize(
    ("ms", "text"),
    [(-5, "0s"), (59_999, "59s"), (61_000, "1m"), (3_660_000, "1h01m"), (90_000_000, "1d01h")],
)
def test_spans(ms: int, text: str) -> None:
    assert span(ms) == text


# --- the screens


class Screens:
    """A running application, and what is on its screens."""

    def __init__(self, app: Top, pilot: Pilot[None]) -> None:
        self.app = app
        self.pilot = pilot

    async def until(self, true: Callable[[], object]) -> None:
        """Until it is true; the application goes on meanwhile."""
        async with asyncio.timeout(PATIENCE_S):
            while not true():
                await self.pilot.pause(0.01)

    def names(self, id: str) -> list[str]:
        """The first cells of a table, in order."""
        found = self.app.screen.query(f"#{id}").results(Table)
        return [cells[0] for table in found for _, cells in table.rows]

    def text(self, id: str) -> str:
        return "".join(
            str(each.render()) for each in self.app.screen.query(f"#{id}").results(Static)
        )


def on_screens(place: str, test: Callable[[Screens], Awaitable[None]], every: float = 0.05) -> None:
    """Run a test in the application."""

    async def main() -> None:
        source = source_of(place)
        app = Top(source, every=every, sort="lag", wanted="")
        try:
            async with app.run_test(size=(140, 40)) as pilot:
                screens = Screens(app, pilot)
                await screens.until(lambda: app.look is not None and screens.names("streams"))
                await test(screens)
        finally:
            await asyncio.to_thread(app.settle)
            source.close()
        if app.failure is not None:
            raise app.failure

    asyncio.run(main())


def test_streams_sorted_reversed_and_filtered(store: Path) -> None:
    async def test(screens: Screens) -> None:
        first = screens.names("streams")
        assert first == ["mails", "orders"]
        await screens.pilot.press("r")
        await screens.until(lambda: screens.names("streams") == first[::-1])
        await screens.pilot.press("r", "s")
        await screens.until(lambda: "by pending" in screens.text("head"))
        await screens.pilot.press("slash", *"ord")
        await screens.until(lambda: screens.names("streams") == ["orders"])
        await screens.pilot.press("enter")
        assert screens.app.focused is screens.app.main.query_one("#streams")
        assert "1 streams with 'ord' in the key" in screens.text("head")
        await screens.pilot.press("escape")
        await screens.until(lambda: len(screens.names("streams")) == 2)
        assert screens.app.main.query_one("#filter", Input).value == ""

    on_screens(str(store), test)


def test_from_a_stream_to_the_life_of_an_entry(store: Path) -> None:
    async def test(screens: Screens) -> None:
        await screens.pilot.press("enter")
        await screens.until(lambda: screens.names("entries"))
        assert screens.text("head") == "mails"
        assert screens.names("groups") == ["workers"]
        assert len(screens.names("consumers")) == 3
        entries = screens.names("entries")
        assert len(entries) == 5 and entries == sorted(entries, reverse=True)
        await screens.pilot.press("down", "down", "down", "enter")
        await screens.until(lambda: "delivered to worker-2" in screens.text("life"))
        assert screens.text("head") == f"mails {entries[3]}"
        assert "put by XADD" in screens.text("life")
        await screens.pilot.press("escape", "escape")
        await screens.until(lambda: screens.names("streams"))

    on_screens(str(store), test)


def test_queues(store: Path) -> None:
    async def test(screens: Screens) -> None:
        await screens.pilot.press("tab")
        await screens.until(lambda: screens.names("queues") == ["mails", "orders"])
        assert not screens.app.main.query_one("#streams").display
        await screens.pilot.press("tab")
        await screens.until(lambda: screens.app.main.query_one("#streams").display)

    on_screens(str(store), test)


def test_it_follows_the_writer_and_can_be_paused(tmp_path: Path) -> None:
    root = tmp_path / "db"
    with tidelog.open(root) as db:
        db.xadd("s", {"n": 1})

        async def test(screens: Screens) -> None:
            await asyncio.to_thread(db.xadd, "t", {"n": 1})
            await screens.until(lambda: sorted(screens.names("streams")) == ["s", "t"])
            await screens.pilot.press("space")
            await screens.until(lambda: "paused" in screens.text("head"))
            await asyncio.to_thread(screens.app.settle)
            await screens.pilot.pause()
            look = screens.app.look
            await asyncio.to_thread(db.xadd, "u", {"n": 1})
            assert screens.app.look is look
            await screens.pilot.press("space")
            await screens.until(lambda: len(screens.names("streams")) == 3)

        on_screens(str(root), test)


def test_a_look_that_comes_while_the_screens_are_taken_apart_is_not_drawn(store: Path) -> None:
    async def test(screens: Screens) -> None:
        await screens.app.main.query("#head").remove()  # as when the application ends
        screens.app.take_now()
        await asyncio.to_thread(screens.app.settle)
        await screens.pilot.pause()

    on_screens(str(store), test)


def test_the_timer_of_an_application_that_has_ended_looks_no_more(store: Path) -> None:
    ended: list[Top] = []

    async def test(screens: Screens) -> None:
        ended.append(screens.app)

    on_screens(str(store), test)
    ended[0].take()


class Failing:
    """A source whose second look fails."""

    title = "failing"

    def __init__(self) -> None:
        self.looks = 0

    def look(self, shown: Sequence[DbKey]) -> Look:
        self.looks += 1
        if self.looks == 2:
            raise tidelog.StoreDamaged("the log is damaged")
        return Look(T0, {}, [row("s", 1, 1)])

    def __getattr__(self, name: str) -> Any:
        raise AssertionError(name)


def test_an_error_of_the_source_ends_it() -> None:
    async def main() -> Top:
        app = Top(Failing(), every=0.02, sort="lag", wanted="")
        async with app.run_test() as pilot:
            async with asyncio.timeout(PATIENCE_S):
                while app.failure is None:
                    await pilot.pause(0.01)
        return app

    app = asyncio.run(main())
    assert isinstance(app.failure, tidelog.StoreDamaged)
    assert app.look is not None


@pytest.mark.parametrize("every", ["0.1", "3600"])
def test_the_time_between_looks(tmp_path: Path, every: str) -> None:
    """The program on a terminal: it shows a new stream by itself, or not until it is asked."""
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 140, 0, 0))
    args = ["top", str(tmp_path / "db"), "--every", every]
    script = (
        f"import sys; sys.path[:0] = {sys.path!r}\n"
        f"from tidelog.tools import cli; sys.exit(cli.run({args!r}))"
    )
    said = ""

    def until(text: str) -> None:
        nonlocal said
        deadline = time.monotonic() + PATIENCE_S
        while text not in said:
            ready, _, _ = select.select([master], [], [], max(0, deadline - time.monotonic()))
            assert ready, f"it shows no {text!r}, but {said!r}"
            said += os.read(master, 65536).decode(errors="replace")

    with tidelog.open(tmp_path / "db") as db:
        db.xadd("first", {"n": 1})
        child = subprocess.Popen(
            [sys.executable, "-c", script],
            stdin=slave,
            stdout=slave,
            stderr=slave,
            env={**os.environ, "TERM": "xterm-256color"},
            start_new_session=True,
        )
        os.close(slave)
        try:
            until("1 streams, by lag")
            db.xadd("second", {"n": 1})
            if every == "3600":
                os.write(master, b"s")  # what it shows again is the previous look
                until("1 streams, by pending")
                assert "second" not in said
                os.write(master, b"\t\t")  # each look at the queues is a new one
            until("second")
            os.write(master, b"q")
            assert child.wait(PATIENCE_S) == 0
        finally:
            child.kill()
            child.wait()
            os.close(master)


# --- a server


@pytest.fixture
def served(tmp_path: Path) -> Iterator[tuple[tidelog.Store, str]]:
    with tidelog.open(tmp_path / "db") as db, tidelog.serve(db, port=0) as server:
        yield db, f"redis://127.0.0.1:{server.port}"


def test_a_server(run: Run, served: tuple[tidelog.Store, str]) -> None:
    db, url = served
    for n in range(4):
        db.xadd("s", {"n": n}, id=f"{n + 1}-0")
    db.xgroup_create("s", "g", id="0")
    db.xreadgroup("g", "anna", {"s": ">"}, count=3)
    told = json.loads(run("top", url, "--json").out)
    (stream,) = told["streams"]
    assert (stream["length"], stream["added"], stream["lag"], stream["pending"]) == (4, 4, 1, 3)
    (group,) = stream["groups"]
    assert (group["name"], group["last_id"], group["read"]) == ("g", "3-0", 3)
    assert [(one["name"], one["pending"]) for one in group["consumers"]] == [("anna", 3)]
    facts = told["facts"]
    assert facts["version"].startswith("tidelog ") and facts["exposed_bytes"] == 0
    assert facts["last_lsn"] == facts["durable_lsn"] == int(db.info()["next_lsn"]) - 1


def test_the_screens_of_a_server(served: tuple[tidelog.Store, str]) -> None:
    db, url = served
    db.xadd("s", {"n": 1}, id="1-0")

    async def test(screens: Screens) -> None:
        await screens.pilot.press("enter")
        await screens.until(lambda: screens.names("entries") == ["1-0"])
        await screens.pilot.press("enter")
        await screens.until(lambda: "added by XADD" in screens.text("life"))

    on_screens(url, test)


def test_the_store_of_a_server_elsewhere(
    served: tuple[tidelog.Store, str], store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another machine may have a store at the path that the server tells. The life that writes it tells them apart."""
    db, url = served
    db.xadd("s", {"n": 1}, id="1-0")
    source = source_of(url)
    try:
        assert "added by XADD" in source.why((0, b"s"), "1-0")
        monkeypatch.setattr(Server, "_root", lambda self: store)
        assert f"tidelog why {store} s 1-0\n" in source.why((0, b"s"), "1-0")
        monkeypatch.setattr(Server, "_root", lambda self: store / "none")
        assert f"tidelog why {store}/none s 1-0\n" in source.why((0, b"s"), "1-0")
    finally:
        source.close()


def test_the_queues_of_a_server(
    run: Run, served: tuple[tidelog.Store, str], tmp_path: Path
) -> None:
    db, url = served
    for n in range(5):
        db.queue("mails").put(n)
    held = [db.queue("mails").get("worker-1", block=0) for _ in range(3)]
    assert held[0] is not None and held[1] is not None
    assert held[0].fail("no") and held[1].nack("later", delay=600)
    told = json.loads(run("top", url, "--json").out)["queues"]
    beside = json.loads(run("top", tmp_path / "db", "--json").out)["queues"]
    for row in (*told, *beside):
        assert abs(row.pop("oldest_ms") - time.time() * 1000) < PATIENCE_S * 1000
    assert told == beside
    (row,) = told
    assert (row["depth"], row["waiting"], row["in_flight"]) == (4, 2, 1)
    assert (row["paused"], row["dead"]) == (1, 1)


def test_one_database(run: Run, served: tuple[tidelog.Store, str], tmp_path: Path) -> None:
    db, url = served
    db.xadd("s", {"n": 1})
    db.db(3).xadd("t", {"n": 1})

    def places(*args: object) -> list[tuple[int, str]]:
        told = json.loads(run("top", *args, "--json", "--sort", "key").out)
        return [(row["db"], row["key"]) for row in told["streams"]]

    assert places(url) == [(0, "s")]
    assert places(url, "--db", 3) == [(3, "t")]
    assert places(tmp_path / "db") == [(0, "s"), (3, "t")]
    assert places(tmp_path / "db", "--db", 3) == [(3, "t")]
    assert places(tmp_path / "db", "--db", 0) == [(0, "s")]
    done = run("top", url, "--db", 99, "--once")
    assert done.code == exits.REFUSED and "refused SELECT" in done.err
    done = run("top", tmp_path / "db", "--db", 16, "--once")
    assert done.code == exits.USAGE and "0 to 15" in done.err


def test_the_oldest_delivery_at_a_server(served: tuple[tidelog.Store, str]) -> None:
    """It need not be among the first pending entries, and need not be that of the lowest ID."""
    db, url = served
    for key in ("s", "t"):
        for n in range(350):
            db.xadd(key, {"n": n}, id=f"{n + 1}-0")
        db.xgroup_create(key, "g", id="0")
        db.xreadgroup("g", "anna", {key: ">"})
    for n in range(200, 240):
        db.xclaim("s", "g", "ben", 0, [f"{n}-0"], idle=n * 1000)
    db.xclaim("s", "g", "ben", 0, ["230-0"], idle=3_600_000)
    db.xclaim("t", "g", "ben", 0, ["1-0"], idle=60_000)
    source = source_of(url)
    try:
        now = time.time() * 1000
        (group,) = source.groups((0, b"s"))
        assert group.oldest_ms is not None and 3_600_000 <= now - group.oldest_ms < 3_700_000
        # of all streams only the delivery of the lowest ID is asked
        rows = ranked(source.look(()).streams, "oldest", reverse=False, wanted="")
        assert [row.key for row in rows] == [b"t", b"s"]
        assert rows[0].oldest_ms is not None and 60_000 <= now - rows[0].oldest_ms < 160_000
    finally:
        source.close()


def test_a_server_that_knows_neither_type_nor_idle(
    served: tuple[tidelog.Store, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a Redis 5.0: the answers are those of its sources, since none runs here."""
    db, url = served
    db.set("k", "1")
    db.xadd("s", {"n": 1}, id="1-0")
    db.xgroup_create("s", "g", id="0")
    db.xreadgroup("g", "anna", {"s": ">"})
    asked = Link.pipeline

    def pipeline(link: Link, *commands: tuple[bytes, ...]) -> list[Any]:
        replies = asked(link, *commands)
        for at, words in enumerate(commands):
            if b"TYPE" in words[1:] or b"IDLE" in words or b"QUEUE" in words:
                replies[at] = ServerError("ERR syntax error")
        return replies

    monkeypatch.setattr(Link, "pipeline", pipeline)
    source = source_of(url)
    try:
        (row,) = source.look(()).streams
        assert (row.key, row.length, row.pending) == (b"s", 1, 1)
        assert row.oldest_ms is not None
        assert source.groups((0, b"s"))[0].oldest_ms is not None
        assert source.queues() == []
    finally:
        source.close()


def test_streams_of_a_server_are_asked_in_turn(served: tuple[tidelog.Store, str]) -> None:
    db, url = served
    count = 2 * STREAMS_ASKED + 10
    with db.pipeline() as unit:
        for n in range(count):
            unit.xadd(f"s{n:04}", {"n": n})
        unit.execute()
    source = source_of(url)
    try:
        shown = [(0, b"s0001")]
        first = source.look(shown)
        assert len(first.streams) == STREAMS_ASKED and shown[0][1] in {r.key for r in first.streams}
        db.xadd("s0001", {"n": 2})
        second = source.look(shown)
        assert next(r for r in second.streams if r.key == b"s0001").length == 2
        assert len(source.look(shown).streams) == count
        db.delete("s0001")
        assert b"s0001" not in {r.key for r in source.look(shown).streams}
    finally:
        source.close()


def test_names_that_are_no_text(run: Run, made: Made) -> None:
    with tidelog.open(made.root.parent / "odd") as db:
        db.xadd(b"\xff[b]", {"n": 1})
    assert '"\\xff[b]"' in run("top", made.root.parent / "odd", "--once").out
