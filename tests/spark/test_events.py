"""The log as tables: what the store acknowledged is in them, once, with the right IDs."""

from __future__ import annotations

import json
import random
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from tests.guard.commands import MANY, many_rows, unblocked
from tests.oracle.grammar import Grammar8
from tests.rounds import rest_slow
from tests.tools.made import T0, Made, ids

import tidelog
from tidelog.aof import identity
from tidelog.aof.errors import NewerRecord
from tidelog.aof.reading.reader import FrameTuple
from tidelog.aof.tail import Tail
from tidelog.disk.real import RealDisk
from tidelog.engine.effects import effect as e
from tidelog.engine.effects.as_commands import added
from tidelog.engine.effects.effect import END, OPCODE, Effect
from tidelog.engine.ids import text
from tidelog.engine.streams.block import encode_run
from tidelog.spark.source import schemas
from tidelog.spark.source.log import events, records
from tidelog.spark.source.log.offsets import Gap
from tidelog.tools.aof.records import records_of
from tidelog.tools.logfiles import LogFiles

Stretches = list[tuple[Path, list[FrameTuple]]]


def stretches(root: Path, nbytes: int = 1 << 20) -> Stretches:
    disk = RealDisk()
    tail = Tail(disk, root / identity.AOF, identity.read(disk, root))
    found = []
    while (stretch := tail.look(nbytes)) is not None:
        found.append((stretch.path, stretch.frames))
        tail.position = stretch.end
    return found


def rows(table: str, given: Stretches, size: int = 10_000) -> list[dict[str, Any]]:
    batches = list(records.batches(table, given, size))
    schema = pa.schema(records.COLUMNS[table])
    for batch in batches:
        batch.validate(full=True)
        assert batch.schema.equals(schema), batch.schema
    return [row for batch in batches for row in batch.to_pylist()]


def pairs(row: Any) -> list[dict[str, bytes]]:
    return [{"name": name, "value": value} for name, value in zip(row[::2], row[1::2])]


def effects(root: Path) -> list[tuple[int, int, int, Effect]]:
    """(LSN, LSN of the unit's end, time of the frame, effect) of each record."""
    found = [
        (record.lsn, record.now, record.effect)
        for path, frame in LogFiles(root).frames()
        for record in records_of(path, frame)
    ]
    ends = [lsn for lsn, _, effect in found if effect[0] & END]
    return [
        (lsn, min(end for end in ends if end >= lsn), now, effect) for lsn, now, effect in found
    ]


def random_store(root: Path, seed: int, turns: int) -> None:
    """Any commands, in all databases, with restarts."""
    print("seed", seed)
    rng = random.Random(seed)
    grammar = Grammar8(rng)
    for life in range(2):
        with tidelog.open(root, fsync="no", save=(), checkpoint_bytes=0) as store:
            view = store
            for turn in range(turns):
                for args in grammar.turn(fill=turn == 0 and life == 0).commands:
                    args = unblocked(args)
                    try:
                        if args[0].upper() == b"SELECT":
                            view = store.db(int(args[1]))
                        elif args[0].upper() == MANY:
                            view.xadd_many(args[1], many_rows(args))
                        else:
                            view.execute_command(*args)
                    except (tidelog.TidelogError, ValueError, IndexError):
                        pass


@pytest.mark.parametrize("seed", rest_slow(range(40), 4))
def test_entries_of_any_history(tmp_path: Path, seed: int) -> None:
    """Every entry that a record adds is a row, in order, whatever the size of the batches."""
    random_store(tmp_path / "s", seed, 80)
    expected = [
        (effect[1], effect[2], text(id).decode(), pairs(row))
        for _, _, _, effect in effects(tmp_path / "s")
        if effect[0] & OPCODE in (e.XADD, e.XADD_NODE, e.XADD_IDMP, e.XADD_MANY)
        for id, row in added(effect)
    ]
    assert expected
    given = stretches(tmp_path / "s", 5000)
    for size in (1, 7, 10_000):
        got = rows("entries", given, size)
        assert [(r["db"], r["stream"], r["id"], r["fields"]) for r in got] == expected
        for row in got:
            ms, seq = map(int, row["id"].split("-"))
            assert row["ms"] == (ms if ms < 1 << 63 else None)
            assert row["seq"] == (seq if seq < 1 << 63 else None)


@pytest.mark.parametrize("seed", rest_slow(range(40), 4))
def test_events_of_any_history(tmp_path: Path, seed: int) -> None:
    """Each record has its rows, with its LSN, its unit and its time; the entries are those of the other table."""
    random_store(tmp_path / "s", seed, 80)
    given = stretches(tmp_path / "s", 5000)
    got = rows("events", given)
    assert got == rows("events", given, 3)
    facts = {lsn: (end, now, effect) for lsn, end, now, effect in effects(tmp_path / "s")}
    assert [row["lsn"] for row in got] == sorted(row["lsn"] for row in got)
    for row in got:
        end, now, effect = facts[row["lsn"]]
        assert row["unit_end"] == end
        assert row["ts"].timestamp() == pytest.approx(now / 1000)
        if effect[0] & OPCODE not in (e.EPOCH, e.FLUSHALL):
            assert row["db"] == effect[1]
        assert row["detail"] is None or isinstance(json.loads(row["detail"]), dict)
    silent = {lsn for lsn in facts} - {row["lsn"] for row in got}
    assert {facts[lsn][2][0] & OPCODE for lsn in silent} <= {e.XREOPEN}
    entries = [(r["db"], r["stream"], r["id"], r["fields"]) for r in got if r["event"] == "added"]
    assert entries == [(r["db"], r["stream"], r["id"], r["fields"]) for r in rows("entries", given)]


@pytest.mark.parametrize("seed", rest_slow(range(20), 3))
def test_what_was_acknowledged_is_there_once(tmp_path: Path, seed: int) -> None:
    """Adds, deliveries, acknowledgements and deletions, as the calls returned them."""
    print("seed", seed)
    rng = random.Random(seed)
    root = tmp_path / "s"
    seen: Counter[tuple[Any, ...]] = Counter()
    with tidelog.open(root, fsync="no", decode_responses=True) as db:
        for stream in ("a", "b"):
            db.xgroup_create(stream, "g", mkstream=True)
        held: list[tuple[str, Any]] = []
        for n in range(300):
            stream = rng.choice("ab")
            consumer = rng.choice(["x", "y"])
            match rng.randrange(7):
                case 0:
                    id = db.xadd(stream, {"n": n})
                    seen["added", stream, id, None, f"n={n}"] += 1
                case 1:
                    made = [{"m": f"{n}.{m}"} for m in range(rng.randrange(1, 400))]
                    for id, fields in zip(db.xadd_many(stream, made), made):
                        seen["added", stream, id, None, f"m={fields['m']}"] += 1
                case 2 | 3:
                    for _, entries in db.xreadgroup("g", consumer, {stream: ">"}, count=50) or ():
                        for id, _ in entries:
                            seen["delivered", stream, id, consumer, 1] += 1
                            held.append((stream, id))
                case 4 if held:
                    stream, id = held.pop(rng.randrange(len(held)))
                    assert db.xack(stream, "g", id) == 1
                    seen["acknowledged", stream, id, None, None] += 1
                case 5 if held:
                    stream, id = rng.choice(held)
                    if db.xclaim(stream, "g", consumer, 0, [id], retrycount=7):
                        seen["claimed", stream, id, consumer, 7] += 1
                case 6 if held:
                    stream, id = held.pop(rng.randrange(len(held)))
                    assert db.xackdel(stream, "g", id) == [1]
                    seen["acknowledged", stream, id, None, None] += 1
                    seen["deleted", stream, id, None, None] += 1
    names = {event for event, *_ in seen}
    got: Counter[tuple[Any, ...]] = Counter()
    for row in rows("events", stretches(root)):
        if row["event"] not in names:
            continue
        value = row["delivery_count"]
        if row["event"] == "added":
            (field,) = row["fields"]
            value = f"{field['name'].decode()}={field['value'].decode()}"
        reader = None if row["consumer"] is None else row["consumer"].decode()
        got[row["event"], row["stream"].decode(), row["id"], reader, value] += 1
    assert got == seen


def one(tmp_path: Path, *unit: Effect) -> list[dict[str, Any]]:
    """The rows of a unit, only with what is not null; without LSN, unit and time."""
    made = Made(tmp_path / "one")
    made.roll(T0)
    made.unit(T0, *unit)
    got = rows("events", stretches(made.write()))
    for row in got:
        assert row.pop("unit_end") == len(unit)
        assert 1 <= row.pop("lsn") <= len(unit)
        row.pop("ts")
        if row["detail"] is not None:
            row["detail"] = json.loads(row["detail"])
        if row["delivered_at"] is not None:
            row["delivered_at"] = round(row["delivered_at"].timestamp() * 1000)
    return [{name: value for name, value in row.items() if value is not None} for row in got]


K = {"db": 3, "stream": b"k"}
G = {**K, "group": b"g"}
C = {**G, "consumer": b"c"}
TWO = ids((5, 1), (6, 2))
F = [{"name": b"f", "value": b"v"}]
POSITION = {"last_delivered_id": "6-2", "entries_read": 9}

# fmt: off
CASES: list[tuple[Effect, list[dict[str, Any]]]] = [
    ((e.EPOCH, 4, 0xA1), [{"event": "epoch", "detail": {"number": 4, "incarnation": "00000000000000a1"}}]),
    ((e.XADD, 3, b"k", 5, 1, (b"f", b"v")), [{**K, "event": "added", "id": "5-1", "fields": F}]),
    ((e.XADD_NODE, 3, b"k", 5, 1, (b"f", b"v")), [{**K, "event": "added", "id": "5-1", "fields": F}]),
    ((e.XADD_IDMP, 3, b"k", 5, 1, (b"f", b"v"), 1, b"p", b"i"), [{**K, "event": "added", "id": "5-1", "fields": F}]),
    ((e.XADD_MANY, 3, b"k", 5, 1, ((b"f", b"v"),), ((2, encode_run(5, 2, 2, [b"f"], [b"v", b"v"])),), ((b"f", b"v"),)),
     [{**K, "event": "added", "id": f"5-{n}", "fields": F} for n in (1, 2, 3, 4)]),
    ((e.XREOPEN, 3, b"k", TWO, (), b""), []),
    ((e.XTRIM, 3, b"k", 7, 4, 0, 4, (), b""), [{**K, "event": "trimmed", "removed": 4, "detail": {"length": 7}}]),
    ((e.XTRIM, 3, b"k", 7, 3, 0, 1, (0, 1, 0, 2), TWO),
     [*({**K, "event": "trimmed", "id": id, "removed": 1, "detail": {"length": 7}} for id in ("5-1", "6-2")),
      {**K, "event": "trimmed", "removed": 1, "detail": {"length": 7}}]),
    ((e.XDEL, 3, b"k", TWO, (0, 1, 0, 2)), [{**K, "event": "deleted", "id": id} for id in ("5-1", "6-2")]),
    ((e.XSETID, 3, b"k", 6, 2, 9, 5, 1),
     [{**K, "event": "stream_changed", "detail": {"last_id": "6-2", "entries_added": 9, "max_deleted_id": "5-1"}}]),
    ((e.XCFGSET, 3, b"k", 60, 10), [{**K, "event": "idmp_changed", "detail": {"duration": 60, "maxsize": 10}}]),
    ((e.XIDMPRECORD, 3, b"k", b"p", b"\xff", 6, 2),
     [{**K, "event": "idmp_recorded", "id": "6-2", "detail": {"pid": "p", "iid": {"base64": "/w=="}}}]),
    ((e.IDMP_DUPLICATE, 3, b"k", b"p", b"i"), [{**K, "event": "duplicate", "detail": {"pid": "p", "iid": "i"}}]),
    ((e.STREAM_CREATE, 3, b"k"), [{**K, "event": "stream_created"}]),
    ((e.XGROUP_CREATE, 3, b"k", b"g", 6, 2, 9), [{**G, "event": "group_created", "detail": POSITION}]),
    ((e.XGROUP_SETID, 3, b"k", b"g", 6, 2, -1),
     [{**G, "event": "group_set", "detail": {**POSITION, "entries_read": None}}]),
    ((e.XGROUP_DESTROY, 3, b"k", b"g"), [{**G, "event": "group_destroyed"}]),
    ((e.XGROUP_CREATECONSUMER, 3, b"k", b"g", b"c", T0), [{**C, "event": "consumer_created"}]),
    ((e.XGROUP_DELCONSUMER, 3, b"k", b"g", b"c"), [{**C, "event": "consumer_deleted"}]),
    ((e.DELIVER, 3, b"k", b"g", b"c", TWO, T0, 1, T0, 6, 2, 9),
     [{**C, "event": "delivered", "id": id, "delivered_at": T0, "delivery_count": 1} for id in ("5-1", "6-2")]),
    ((e.DELIVER, 3, b"k", b"g", b"c", TWO, T0, (4, 5), -1),
     [{**C, "event": "reread", "id": id, "delivered_at": T0, "delivery_count": n}
      for id, n in (("5-1", 4), ("6-2", 5))]),
    ((e.DELIVER, 3, b"k", b"g", b"c", TWO, T0, 2, T0),
     [{**C, "event": "claimed", "id": id, "delivered_at": T0, "delivery_count": 2} for id in ("5-1", "6-2")]),
    ((e.DELIVER, 3, b"k", b"g", b"c", b"", T0, 1, T0, 6, 2, 9), [{**C, "event": "group_read", "detail": POSITION}]),
    ((e.DELIVER, 3, b"k", b"g", b"c", TWO, T0, (3, 1), T0, 6, 2, 9),
     [{**C, "event": event, "id": id, "delivered_at": T0, "delivery_count": n}
      for event, id, n in (("claimed", "5-1", 3), ("delivered", "6-2", 1))]),
    ((e.DELIVER, 3, b"k", b"g", b"c", TWO, T0, (1, 4), T0, 6, 2, 9),
     [*({**C, "event": "claimed", "id": id, "delivered_at": T0, "delivery_count": n}
        for id, n in (("5-1", 1), ("6-2", 4))), {**C, "event": "group_read", "detail": POSITION}]),
    ((e.DELIVER, 3, b"k", b"g", b"c", ids((5, 1)), T0, 1, T0, 6, 2, 9),
     [{**C, "event": "claimed", "id": "5-1", "delivered_at": T0, "delivery_count": 1},
      {**C, "event": "group_read", "detail": POSITION}]),
    ((e.DELIVER, 3, b"k", b"g", b"c", b"", T0, 0, -1), [{**C, "event": "consumer_seen"}]),
    ((e.XACK, 3, b"k", b"g", TWO), [{**G, "event": "acknowledged", "id": id} for id in ("5-1", "6-2")]),
    ((e.XNACK, 3, b"k", b"g", TWO, (4, 5)),
     [{**G, "event": "released", "id": id, "delivery_count": n} for id, n in (("5-1", 4), ("6-2", 5))]),
    ((e.XACKDEL, 3, b"k", b"g", TWO, (0, 1, 0, 2)),
     [*({**G, "event": "acknowledged", "id": id} for id in ("5-1", "6-2")),
      *({**K, "event": "deleted", "id": id} for id in ("5-1", "6-2"))]),
    ((e.DEL, 3, (b"k", b"l")), [{**K, "event": "key_deleted"}, {**K, "stream": b"l", "event": "key_deleted"}]),
    ((e.SET, 3, b"k", b"abc", T0), [{**K, "event": "key_set", "detail": {"bytes": 3, "expires_at": T0}}]),
    ((e.PEXPIREAT, 3, b"k", T0), [{**K, "event": "expiry", "detail": {"expires_at": T0}}]),
    ((e.PERSIST, 3, b"k"), [{**K, "event": "expiry", "detail": {"expires_at": None}}]),
    ((e.RENAME, 3, b"k", b"l"), [{**K, "event": "renamed", "detail": {"to": "l"}}]),
    ((e.RESTORE, 3, b"k", 0, b"\x01x", -1),
     [{**K, "event": "restored", "detail": {"bytes": 2, "expires_at": None}}]),
    ((e.COPY, 3, b"k", 4, b"l"), [{**K, "event": "copied", "detail": {"to": "l", "to_db": 4}}]),
    ((e.MOVE, 3, b"k", 4), [{**K, "event": "moved", "detail": {"to_db": 4}}]),
    ((e.SWAPDB, 3, 4), [{"db": 3, "event": "swapped", "detail": {"to_db": 4}}]),
    ((e.FLUSHDB, 3), [{"db": 3, "event": "flushed"}]),
    ((e.FLUSHALL,), [{"event": "flushed"}]),
    ((e.APPEND, 3, b"k", b"abc"), [{**K, "event": "key_appended", "detail": {"bytes": 3}}]),
]
# fmt: on


def test_the_commands_that_write_deliveries(tmp_path: Path) -> None:
    """Reads, claims and both at once, as a consumer sees them."""
    root = tmp_path / "s"
    with tidelog.open(root, fsync="no", decode_responses=True) as db:
        run = db.execute_command
        for n in range(1, 9):
            run("XADD", "s", f"{n}-0", "n", n)
        run("XGROUP", "CREATE", "s", "g", "0")
        run("XREADGROUP", "GROUP", "g", "a", "COUNT", 3, "STREAMS", "s", ">")
        run("XREADGROUP", "GROUP", "g", "a", "STREAMS", "s", "0")
        run("XREADGROUP", "GROUP", "g", "b", "COUNT", 4, "CLAIM", 0, "STREAMS", "s", ">")
        run("XCLAIM", "s", "g", "c", 0, "1-0", "LASTID", "5-0")
        run("XCLAIM", "s", "g", "c", 0, "99-0", "LASTID", "6-0")
        run("XREADGROUP", "GROUP", "g", "c", "NOACK", "COUNT", 1, "STREAMS", "s", ">")
        run("XREADGROUP", "GROUP", "g", "d", "COUNT", 5, "CLAIM", 0, "NOACK", "STREAMS", "s", ">")
        run("XDEL", "s", "2-0")
        run("XAUTOCLAIM", "s", "g", "d", 9999, "0")
    found = [row for row in rows("events", stretches(root)) if row["consumer"] is not None]
    told = [
        (
            row["event"],
            row["consumer"].decode(),
            row["id"] and int(row["id"].split("-")[0]),
            row["delivery_count"],
        )
        for row in found
    ]
    assert told == [
        *(("delivered", "a", n, 1) for n in (1, 2, 3)),
        *(("reread", "a", n, 2) for n in (1, 2, 3)),
        *(("claimed", "b", n, 3) for n in (1, 2, 3)),
        ("delivered", "b", 4, 1),
        ("claimed", "c", 1, 4),
        ("group_read", "c", None, None),
        ("group_read", "c", None, None),
        ("group_read", "c", None, None),
        *(("claimed", "d", n, count) for n, count in ((1, 5), (2, 4), (3, 4), (4, 2))),
        ("group_read", "d", None, None),
        ("consumer_seen", "d", None, None),
    ]


@pytest.mark.parametrize("number", range(len(CASES)))
def test_the_rows_of_each_record(tmp_path: Path, number: int) -> None:
    effect, expected = CASES[number]
    assert one(tmp_path, effect) == expected
    # Among others of its unit, which have as many rows as they like.
    (before, before_rows), (after, after_rows) = CASES[4], CASES[19]
    assert one(tmp_path, before, effect, after) == [*before_rows, *expected, *after_rows]


def test_every_record_has_a_case() -> None:
    logged = {
        value
        for name, value in vars(e).items()
        if name.isupper()
        and isinstance(value, int)
        and name not in ("END", "OPCODE", "VOLATILE", "SEEN")
    }
    assert {effect[0] for effect, _ in CASES} == logged


@pytest.mark.parametrize("table", ["entries", "events"])
def test_large_entries_do_not_gather(tmp_path: Path, table: str) -> None:
    """A batch is bounded by bytes too, whether entries came one by one or as a batch."""
    with tidelog.open(tmp_path / "s", fsync="no", save=(), checkpoint_bytes=0) as store:
        for n in range(400):
            store.xadd("s", {"n": bytes([n % 256]) * 100_000})
        store.xadd_many("s", [{"n": bytes([n % 256]) * 100_000} for n in range(400)])
    held = 0
    found = 0
    for batch in records.batches(table, stretches(tmp_path / "s", 1 << 20)):
        held = max(held, batch.nbytes)
        found += len(batch) - pc.sum(pc.is_null(batch.column("fields"))).as_py()
    assert found == 800
    assert held < 50_000_000, held  # 8 MiB, and the 40 MB of one record


def test_rows_and_blocks_stay_in_order(tmp_path: Path) -> None:
    with tidelog.open(tmp_path / "s", fsync="no", save=(), checkpoint_bytes=0) as store:
        for start in range(0, 3000, 300):
            store.xadd("s", {"n": start})
            store.xadd_many("t", [{"n": n} for n in range(start + 1, start + 299)])
            store.xadd("s", {"n": start + 299})
    given = stretches(tmp_path / "s", 5000)
    for size in (1, 100, 1000, 10_000):
        got = [int(row["fields"][0]["value"]) for row in rows("entries", given, size)]
        assert got == list(range(3000)), size


def test_a_record_of_a_newer_version(tmp_path: Path) -> None:
    for table in records.COLUMNS:
        made = Made(tmp_path / table)
        made.roll(T0)
        made.unit(T0, (e.SET, 0, b"k", b"v", -1))
        made.unit(T0, (47, 0))
        given = stretches(made.write())
        with pytest.raises(NewerRecord, match="LSN 2 has kind 47"):
            rows(table, given)


def test_ids_and_times_beyond_bigint(tmp_path: Path) -> None:
    made = Made(tmp_path / "s")
    made.roll(T0)
    made.unit(T0, (e.XADD_NODE, 0, b"k", (1 << 64) - 1, (1 << 64) - 1, (b"f", b"v")))
    given = stretches(made.write())
    (row,) = rows("entries", given)
    assert row["id"] == "18446744073709551615-18446744073709551615"
    assert (row["ms"], row["seq"], row["ts"]) == (None, None, None)
    (row,) = rows("events", given)
    assert row["id"] == "18446744073709551615-18446744073709551615"


def test_a_gap() -> None:
    batch = records.gap(T0, Gap("released", 3, 9))
    assert batch.schema.equals(pa.schema(events.EVENTS))
    (row,) = batch.to_pylist()
    assert (row["lsn"], row["unit_end"], row["event"]) == (9, 9, "gap")
    assert json.loads(row["detail"]) == {"reason": "released", "from_lsn": 3, "to_lsn": 9}


def test_no_rows(tmp_path: Path) -> None:
    assert rows("entries", []) == rows("events", []) == []


def test_the_columns_are_those_of_a_snapshot() -> None:
    assert records.COLUMNS["entries"] is schemas.ENTRIES
