"""The collector does not visit streams, and need not: nothing leads from one back to what holds it."""

from __future__ import annotations

import gc
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any

from tests import inside

import tidelog
from tidelog.engine.keys.freeze import freeze, thaw
from tidelog.engine.keys.keyspace import Keyspace
from tidelog.engine.keys.state import State
from tidelog.engine.streams.stream import Stream
from tidelog.store.commit.core import Core


def used(db: tidelog.Store, key: str) -> None:
    """A stream that has all that a stream can have."""
    db.xadd_many(key, [{"n": n} for n in range(500)])
    db.xgroup_create(key, "g", "0")
    db.xreadgroup("g", "c", {key: ">"}, count=200)
    db.xdel(key, *[id for id, _ in db.xrange(key, count=3)])
    db.xcfgset(key, idmp_duration=100)
    db.checkpoint()
    db.xadd(key, {"n": 500})
    db.xdel(key, db.xrange(key, count=1)[0][0])


def tracked(count: int, db: tidelog.Store) -> int:
    """How many more objects the collector visits after that many streams were made."""
    gc.collect()
    before = len(gc.get_objects())
    for number in range(count):
        db.xadd(f"s:{number}", {"a": 1})
        db.xadd(f"s:{number}", {"a": 2})
    gc.collect()
    return len(gc.get_objects()) - before


def test_streams_are_not_visited(tmp_path: Path) -> None:
    with tidelog.open(tmp_path / "store", fsync="no") as db:
        assert tracked(2_000, db) < 200


def test_nodes_that_follow_are_not_either(tmp_path: Path) -> None:
    with tidelog.open(tmp_path / "store", fsync="no") as db:
        for number in range(150):
            db.xadd("s", {"n": number})
        stream: Any = inside.databases(db)[0].keys[b"s"]
        assert len(stream.blocks) == 1 and stream.tail_ids
        assert not gc.is_tracked(stream.tail_ids) and not gc.is_tracked(stream.tail_rows)


def test_nothing_leads_from_a_stream_to_what_holds_it(tmp_path: Path) -> None:
    with tidelog.open(tmp_path / "store") as db:
        used(db, "s")
    with tidelog.open(tmp_path / "store") as db:
        used(db, "t")
        db.xrange("s", count=1)  # loaded
        keys = inside.databases(db)[0].keys
        for key in (b"s", b"t"):
            stream = keys[key]
            assert isinstance(stream, Stream)
            found = reachable(stream)
            assert len(found) > 30
            assert not any(isinstance(each, (Stream, Keyspace, State, Core)) for each in found[1:])


def test_what_a_checkpoint_is_to_write_is_not_visited(tmp_path: Path) -> None:
    with tidelog.open(tmp_path / "store") as db:
        for number in range(10):
            db.xadd(f"s:{number}", {"a": 1})
        state = inside.core(db).state
        frozen = freeze(state)
        assert len(frozen._streams) == 10 and not gc.is_tracked(frozen._streams)
        thaw(state, frozen)


def reachable(root: object) -> list[object]:
    """All objects that an object refers to, and those in turn; not by way of types and modules, and by way of
    functions only through what they enclose.
    """
    seen, found = {id(root)}, [root]
    for each in found:
        if isinstance(each, FunctionType):
            referents: Any = each.__closure__ or ()
        else:
            referents = gc.get_referents(each)
        for referent in referents:
            if id(referent) not in seen and not isinstance(referent, (type, ModuleType)):
                seen.add(id(referent))
                found.append(referent)
    return found
