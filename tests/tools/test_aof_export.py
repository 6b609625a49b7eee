"""tidelog aof export --resp: the stream itself, and what a real Redis makes of it through redis-cli --pipe."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import redis
from tests.oracle.server import Clock, RedisServer, directory, tool
from tests.tools.conftest import Run, expect
from tests.tools.made import T0, Made, ids

import tidelog
from tidelog.aof.reading import reader
from tidelog.engine.effects import effect as e
from tidelog.engine.effects.apply import APPLY
from tidelog.engine.keys.state import State
from tidelog.resp.commands import encoded
from tidelog.tools import exits
from tidelog.tools.aof import export as aof_export
from tidelog.tools.aof.export import Base, stream, units
from tidelog.tools.aof.losses import keys_text
from tidelog.tools.aof.records import records_of
from tidelog.tools.logfiles import LogFiles


def lines(root: Path, to_lsn: int | None = None) -> list[str]:
    records = (
        record for path, frame in LogFiles(root).frames() for record in records_of(path, frame)
    )
    return [
        b" ".join(command).decode("utf-8", "backslashreplace")
        for command in stream(units(records, to_lsn))
    ]


def test_the_stream(made: Made) -> None:
    assert lines(made.root) == [
        "SELECT 0",
        "XADD orders 1700000000001-0 item tea n 2",
        'XADD orders 1700000000002-0 item "green" tea n \\xff',
        "MULTI",
        "XADD jobs MAXLEN 0 0-1 x y",
        "XSETID jobs 0-0 ENTRIESADDED 0 MAXDELETEDID 0-0",
        "XGROUP CREATE jobs g 0-0 ENTRIESREAD -1",
        "EXEC",
        "XGROUP CREATE orders packers 0-0 ENTRIESREAD -1",
        "MULTI",
        "XCLAIM orders packers anna 0 1700000000001-0 TIME 1700000001000 RETRYCOUNT 1 FORCE JUSTID"
        " LASTID 1700000000002-0",
        "XCLAIM orders packers anna 0 1700000000002-0 TIME 1700000001000 RETRYCOUNT 1 FORCE JUSTID"
        " LASTID 1700000000002-0",
        "XGROUP SETID orders packers 1700000000002-0 ENTRIESREAD 2",
        "EXEC",
        "SELECT 3",
        "MULTI",
        "SET balance 7",
        "SET session x PXAT 4398046511104",
        "SELECT 0",
        "XACK orders packers 1700000000001-0",
        "EXEC",
        "MULTI",
        "XADD lines 1700000003000-0 n 1",
        "XADD lines 1700000003000-1 n 2",
        "XADD lines 1700000003000-2 n 3",
        "EXEC",
        "XTRIM lines MAXLEN = 2",
    ]


def test_bytes_on_standard_output(run: Run, made: Made) -> None:
    done = run("aof", "export", "--resp", made.root)
    assert done.code == 0
    assert done.out.startswith(
        "*2\r\n$6\r\nSELECT\r\n$1\r\n0\r\n*7\r\n$4\r\nXADD\r\n$6\r\norders\r\n"
    )


def test_to_a_file_but_never_over_one(run: Run, made: Made, tmp_path: Path) -> None:
    target = tmp_path / "orders.resp"
    assert run("aof", "export", "--resp", made.root, "-o", target) == (0, "", "")
    text = target.read_bytes()
    assert text.endswith(encoded([b"XTRIM", b"lines", b"MAXLEN", b"=", b"2"]))
    done = run("aof", "export", "--resp", made.root, "-o", target)
    assert (done.code, done.err) == (exits.SYSTEM, f"tidelog: {target}: File exists\n")
    assert target.read_bytes() == text


@pytest.mark.parametrize("to_lsn", [9, 10, 11])
def test_to_lsn_keeps_the_unit_whole(made: Made, to_lsn: int) -> None:
    assert lines(made.root, to_lsn)[-2:] == ["XACK orders packers 1700000000001-0", "EXEC"]


def test_a_swap_does_not_change_the_selected_database(tmp_path: Path) -> None:
    made = Made(tmp_path / "data")
    made.roll(T0)
    made.unit(T0, (e.SET, 1, b"k", b"1", -1))
    made.unit(T0, (e.SWAPDB, 0, 1), (e.FLUSHALL,))
    made.unit(
        T0, (e.XREOPEN, 0, b"s", ids((1, 1)), ((b"f", b"v"),), b""), (e.APPEND, 1, b"k", b"2")
    )
    made.write()
    assert lines(made.root) == [
        *("SELECT 1", "SET k 1", "MULTI", "SWAPDB 0 1", "FLUSHALL", "EXEC", "APPEND k 2"),
    ]


# --- where the log begins behind a checkpoint


@pytest.fixture
def folded(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """A list whose one number is the LSN up to which the log counts as folded into a checkpoint."""
    at = [0]

    @contextmanager
    def base_of(path: Path) -> Iterator[Base]:
        files = LogFiles(path)
        state = State()
        left = []
        for segment, frame in files.frames():
            if frame.lsn > at[0]:
                left.append((segment, frame))
                continue
            for effect in reader.records_of(segment, frame):
                APPLY[effect[0]](state, effect)
        yield Base(at[0], state, iter(left), sum(len(frame.body) for _, frame in left))

    monkeypatch.setattr(aof_export, "base_of", base_of)
    yield at


def test_the_state_of_the_checkpoint_and_what_came_after(
    run: Run, made: Made, folded: list[int]
) -> None:
    folded[0] = 8
    done = run("aof", "export", "--resp", made.root)
    assert done.code == 0
    sent = [line for line in done.out.split("\r\n") if line and line[0] not in "*$"]
    assert sent[:24] == [
        *("SELECT", "0"),
        *("XADD", "jobs", "MAXLEN", "0", "0-1", "x", "y"),
        *("XSETID", "jobs", "0-0", "ENTRIESADDED", "0", "MAXDELETEDID", "0-0"),
        *("XGROUP", "CREATE", "jobs", "g", "0-0", "ENTRIESREAD", "-1"),
        "XADD",
    ]
    text = " ".join(sent)
    assert "XCLAIM orders packers anna 0 1700000000001-0 TIME 1700000001000 RETRYCOUNT 1" in text
    assert text.count("SELECT 3 MULTI SET balance 7") == 1
    expect("export-lost.txt", done.err, made.root)


def test_what_is_not_exported_as_json(run: Run, made: Made, folded: list[int]) -> None:
    folded[0] = 8
    done = run("aof", "export", "--resp", made.root, "--json")
    found = json.loads(done.err)
    assert found["checkpoint_lsn"] == 8
    assert [(row["kind"], row["db"], row["key"], row["count"]) for row in found["lost"]] == [
        *(("seen-time", 0, "orders", 1), ("active-time", 0, "orders", 1)),
    ]


def test_json_of_a_whole_log(run: Run, made: Made) -> None:
    done = run("aof", "export", "--resp", made.root, "--json")
    assert json.loads(done.err) == {"checkpoint_lsn": 0, "lost": []}


def test_to_lsn_before_the_checkpoint_is_refused(
    run: Run, made: Made, folded: list[int], tmp_path: Path
) -> None:
    folded[0] = 8
    target = tmp_path / "none.resp"
    done = run("aof", "export", "--resp", made.root, "--to-lsn", 7, "-o", target)
    assert done.code == exits.USAGE
    assert (
        "the records up to LSN 8 are only in the checkpoint, so --to-lsn must be 8 or more"
        in done.err
    )
    assert not target.exists()
    assert run("aof", "export", "--resp", made.root, "--to-lsn", 8, "-o", target).code == 0


def test_the_target_is_of_the_rewrite(run: Run, tmp_path: Path, folded: list[int]) -> None:
    with tidelog.open(tmp_path / "data", fsync="no") as db:
        db.xadd("s", {"f": "v"})
        db.xgroup_create("s", "g", id="0")
        db.xreadgroup("g", "anna", {"s": ">"})
        [[id, _]] = db.xrange("s")
        db.execute_command("XNACK", "s", "g", "FAIL", "IDS", 1, id)
    folded[0] = 1000
    for target, sent in (("8.8", True), ("7.0", False)):
        done = run("aof", "export", "--resp", tmp_path / "data", "--target", target)
        assert ("XNACK" in done.out) is sent
        assert ("pending of the consumer ''" in done.err) is not sent


def test_many_keys_are_told_as_a_few(tmp_path: Path) -> None:
    found = {(0, b"a"): 1, (3, b"two words"): 7, (0, b"c"): 2, (0, b"d"): 1, (0, b"e"): 1}
    assert keys_text(found) == '[3] "two words", c, a and 2 more'


@pytest.fixture(scope="module")
def server() -> Iterator[RedisServer]:
    place = directory()
    clock = Clock(place)
    # later than anything a test writes: Redis clips times of the future
    clock.set(T0 + 10_000_000_000_000)
    running = RedisServer(place, clock)
    yield running
    running.close()
    shutil.rmtree(place)


@pytest.fixture
def client(server: RedisServer) -> Iterator[redis.Redis]:
    with redis.Redis(unix_socket_path=str(server.socket), protocol=2) as connected:
        connected.flushall()
        yield connected


def pipe(run: Run, root: Path, server: RedisServer, *flags: str) -> str:
    """Import an export. Returns the list of what was lost."""
    exported = root.parent / "export.resp"
    written = run("aof", "export", "--resp", root, "-o", exported, *flags)
    assert written.code == 0
    done = subprocess.run(
        [tool("redis-cli", "redis-tools"), "-s", str(server.socket), "--pipe"],
        input=exported.read_bytes(),
        capture_output=True,
        timeout=120,
    )
    assert b"errors: 0," in done.stdout, done.stdout + done.stderr
    return written.err


def view(client: Any, key: str) -> dict[str, Any]:
    """XINFO STREAM FULL as far as a 7.0 has it and both take it from the same clock."""
    info = client.xinfo_stream(key, full=True)
    names = ("length", "radix-tree-keys", "last-generated-id", "max-deleted-entry-id")
    kept = {name: info[name] for name in (*names, "entries-added", "recorded-first-entry-id")}
    kept["entries"] = info["entries"]
    kept["groups"] = [
        {
            "group": [group[n] for n in ("name", "last-delivered-id", "entries-read", "pel-count")],
            "pending": group["pending"],
            "consumers": [
                [consumer[n] for n in ("name", "pel-count", "pending")]
                for consumer in group["consumers"]
            ],
        }
        for group in info["groups"]
    ]
    return kept


def test_redis_takes_the_sample(
    run: Run, made: Made, server: RedisServer, client: redis.Redis
) -> None:
    pipe(run, made.root, server)
    with tidelog.open(made.root, read_only=True) as db:
        for key in ("orders", "jobs", "lines"):
            # The sample's nodes are cut by hand, where Redis would not.
            there, here = view(client, key), view(db, key)
            del there["radix-tree-keys"], here["radix-tree-keys"]
            assert there == here
    assert view(client, "jobs")["last-generated-id"] in (b"0-0", "0-0")


def test_redis_agrees_after_a_working_day(
    run: Run, tmp_path: Path, server: RedisServer, client: redis.Redis
) -> None:
    root = tmp_path / "data"
    with tidelog.open(root, fsync="no") as db:
        db.xgroup_create("s", "g", id="0", mkstream=True)
        db.xgroup_create("s", "h", id="$")
        for n in range(300):
            db.xadd("s", {"n": n, "\x00binary\xff": "two words"})
        db.xadd_many("s", ({"n": n, "other": "x" * 50} for n in range(300, 1000)))
        for consumer in ("anna", "ben", ""):
            [[_, entries]] = db.xreadgroup("g", consumer, {"s": ">"}, count=150)
            db.xack("s", "g", *(id for id, _ in entries[::3]))
        db.xreadgroup("h", "anna", {"s": ">"}, count=400, noack=True)
        db.xautoclaim("s", "g", "carol", min_idle_time=0, count=20)
        db.xreadgroup("g", "ben", {"s": "0"}, count=5)
        ids = [id for id, _ in db.xrange("s", count=20)]
        db.xdel("s", *ids[10:15])
        db.xtrim("s", maxlen=900, approximate=False)
        db.xgroup_delconsumer("s", "g", "")
        db.copy("s", "copy")
        db.xtrim("copy", maxlen=0, approximate=False)
        db.rename("copy", "renamed")
        with db.pipeline(transaction=True) as unit:
            unit.set("token", "1")
            unit.append("token", "23")
            unit.xadd("s", {"last": "one"}, maxlen=5, approximate=False)
            unit.execute()
        pipe(run, root, server)  # beside the open writer
        for key in ("s", "renamed"):
            assert view(client, key) == view(db, key)
        assert client.get("token") == db.get("token") == b"123"
        assert sorted(client.keys()) == sorted(db.keys())


def test_an_old_redis_takes_what_commands_of_8_left_in_the_log(
    run: Run, tmp_path: Path, server: RedisServer, client: redis.Redis
) -> None:
    root = tmp_path / "data"
    with tidelog.open(root, fsync="no") as db:
        ids: list[Any] = [db.xadd("s", {"n": n}) for n in range(20)]
        db.execute_command("XCFGSET", "s", "IDMP-DURATION", 60)
        db.execute_command("XADD", "s", "IDMP", "producer", "one", "*", "n", "20")
        db.execute_command("XADD", "s", "IDMP", "producer", "one", "*", "n", "20")
        db.xgroup_create("s", "g", id="0")
        db.xreadgroup("g", "anna", {"s": ">"}, count=12)
        db.execute_command("XNACK", "s", "g", "FAIL", "IDS", 2, ids[0], ids[1])
        db.execute_command("XACKDEL", "s", "g", "IDS", 1, ids[2])
        db.execute_command("XDELEX", "s", "DELREF", "IDS", 1, ids[3])
        db.xack("s", "g", ids[5], ids[7])
        db.execute_command("XTRIM", "s", "MAXLEN", 14, "ACKED")
        lost = pipe(run, root, server, "--target", "7.0", "--json")
        kept = db.xrange("s")
        assert client.xrange("s") == kept and len(kept) == 17
        there, here = (
            {
                row["message_id"]: row["times_delivered"]
                for row in c.xpending_range("s", "g", "-", "+", 99)
            }
            for c in (client, db)
        )
        assert there == here and ids[0] in here
        assert client.xclaim("s", "g", "ben", 0, [ids[0]], justid=True) == [ids[0]]
    counts = {row["kind"]: row["count"] for row in json.loads(lost)["lost"]}
    assert counts == {"dedup": 2, "nacked": 2, "max-deleted": 2}


@pytest.mark.parametrize("lsn", [0, 3, 9, 13, 14])
def test_redis_takes_a_checkpoint_and_the_rest(
    run: Run, made: Made, server: RedisServer, client: redis.Redis, folded: list[int], lsn: int
) -> None:
    folded[0] = lsn
    pipe(run, made.root, server)
    with tidelog.open(made.root, read_only=True) as db:
        for key in ("orders", "jobs", "lines"):
            there, here = view(client, key), view(db, key)
            del there["radix-tree-keys"], here["radix-tree-keys"]
            assert there == here
    client.select(3)
    assert client.get("balance") == b"7"
    client.select(0)


def test_what_dump_prints_can_be_typed_into_redis_cli(
    run: Run, made: Made, server: RedisServer, client: redis.Redis
) -> None:
    printed = run("aof", "dump", made.root, "--key", "orders").out
    typed = "".join(line.split("] ", 1)[1] + "\n" for line in printed.splitlines())
    done = subprocess.run(
        [tool("redis-cli", "redis-tools"), "-s", str(server.socket)],
        input=typed.encode(),
        capture_output=True,
        timeout=120,
    )
    assert b"ERR" not in done.stdout and b"Invalid argument" not in done.stdout, done.stdout
    with tidelog.open(made.root, read_only=True) as db:
        assert view(client, "orders") == view(db, "orders")
