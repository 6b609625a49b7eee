"""Records and rows whose checksums hold, but which are no effects or contradict the state: one line that names them."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import msgpack
import pytest
from tests.snapshot.world import without_sums
from tests.tools.conftest import Run
from tests.tools.made import T0, Made, ids, packed

import tidelog
from tidelog.aof.identity import CHECKPOINT
from tidelog.engine.effects import effect as e
from tidelog.engine.effects.effect import END
from tidelog.engine.groups.chunk_rows import unpack_chunk
from tidelog.engine.rowkeys import stream_row
from tidelog.engine.streams.pages import unpack_page
from tidelog.tools import exits

LSN = 4
# A key that is a number, a field too few, a field of another type, and a key that is not there.
# fmt: off
NO_EFFECTS: list[tuple[Any, ...]] = [
    (e.XADD, 0, 7, 5, 0, (b"f", b"v")),
    (e.XADD, 0, b"s", 5, 0),
    (e.XACK, 0, b"s", b"g", b"1234567"),
    (e.DELIVER, 0, b"s", b"g", b"c", ids((1, 0)), T0, b"one", T0),
    (e.XSETID, 0, b"s", (), 0, 0, 0, 0),
    (e.SET, 0, b"k", 7, -1),
]
# fmt: on
SHOWING = (
    ["aof", "dump"],
    ["aof", "dump", "--format", "json"],
    ["aof", "dump", "--format", "resp"],
    ["aof", "dump", "--id", "1-0..9-0"],
    ["aof", "export", "--resp"],
)
REPLAYING = (["info"], ["digest"], ["state", "--json"], ["why"])


def made_with(root: Path, record: tuple[Any, ...]) -> Path:
    made = Made(root)
    made.roll(T0)
    made.unit(T0, (e.EPOCH, 1, 0xA1))
    made.unit(T0, (e.XADD_NODE, 0, b"s", 1, 0, (b"f", b"v")))
    made.unit(T0, (e.XGROUP_CREATE, 0, b"s", b"g", 0, 0, -1))
    made.unit(T0, record)
    return made.write()


@pytest.mark.parametrize("words", [*SHOWING, *REPLAYING], ids=" ".join)
@pytest.mark.parametrize("record", NO_EFFECTS)
def test_a_record_that_is_no_effect(
    run: Run, tmp_path: Path, record: tuple[Any, ...], words: list[str]
) -> None:
    root = made_with(tmp_path / "db", record)
    done = run(*words, root, *(["s", "1-0"] if words == ["why"] else []))
    assert done.code in (exits.DAMAGED, exits.OK), done.err
    if done.code == exits.DAMAGED:
        assert done.err.count("\n") == 1, done.err
        assert f"LSN {LSN}" in done.err or f"LSN 1 to {LSN}" in done.err, done.err
    else:  # shown as it is
        assert not done.err
    assert run("aof", "verify", root).code != exits.OK


@pytest.mark.parametrize("words", REPLAYING, ids=" ".join)
def test_an_effect_that_does_not_fit(run: Run, tmp_path: Path, words: list[str]) -> None:
    root = made_with(tmp_path / "db", (e.XACK, 0, b"s", b"nobody", ids((1, 0))))
    done = run(*words, root, *(["s", "1-0"] if words == ["why"] else []))
    assert (done.code, done.err.count("\n")) == (exits.DAMAGED, 1), done.err
    assert "cannot be applied (KeyError: b'nobody')" in done.err


def test_the_store_does_not_open(tmp_path: Path) -> None:
    root = made_with(tmp_path / "db", (e.XACK, 0, b"s", b"nobody", ids((1, 0))))
    with pytest.raises(Exception, match="one of the records with LSN 1 to 4 cannot be applied"):
        tidelog.open(root)


def test_stats_names_a_kind_of_a_newer_version(run: Run, tmp_path: Path) -> None:
    done = run("aof", "stats", made_with(tmp_path / "db", (e.OPCODE, 0, b"s")))
    assert (done.code, done.err.count("\n")) == (exits.NEWER, 1)
    assert "the record with LSN 4 has kind 63" in done.err


def test_a_slot_that_no_node_has_takes_no_memory(run: Run, tmp_path: Path) -> None:
    """The mask of deleted slots would have as many bits."""
    for slots in ((0, 1 << 40), (0, 0, 0, 1 << 40)):
        root = made_with(tmp_path / "db", (e.XDEL, 0, b"s", ids((1, 0), (2, 0)), slots))
        done = run("digest", root)
        assert (done.code, done.err.count("\n")) == (exits.DAMAGED, 1), done.err
        shutil.rmtree(root)


def test_a_slot_behind_the_last_one_of_its_node(run: Run, tmp_path: Path) -> None:
    """The stream would have fewer entries than none."""
    root = made_with(tmp_path / "db", (e.XDEL, 0, b"s", ids((1, 0)), (0, 1)))
    done = run("state", root)
    assert (done.code, done.err.count("\n")) == (exits.DAMAGED, 1), done.err
    assert "deletes entries that their node does not have" in done.err


def test_a_floor_that_no_node_has_takes_no_memory(run: Run, tmp_path: Path) -> None:
    root = made_with(tmp_path / "db", (e.XTRIM, 0, b"s", 0, 1, 0, 1 << 40, (), ()))
    done = run("digest", root)
    assert (done.code, done.err.count("\n")) == (exits.DAMAGED, 1), done.err


def test_a_frame_that_ends_inside_a_record(run: Run, tmp_path: Path) -> None:
    """The bytes behind the last record are the beginning of another one."""
    for rest in (b"\xc4\xa1", b"\x93\x01", b"\xa5ab", b"\xc0"):
        made = Made(tmp_path / rest.hex())
        made.roll(T0)
        made.unit(T0, (e.EPOCH, 1, 0xA1))
        made.raw(T0, packed((e.FLUSHALL | END,)) + rest, 1)
        made.unit(T0, (e.FLUSHALL,))
        for words in (["digest"], ["aof", "verify"], ["aof", "dump"]):
            done = run(*words, made.write())
            assert "cannot be decoded" in done.err + done.out, (rest, words, done)
            assert done.code in (exits.DAMAGED, exits.VERIFY_RECORDS), done


def test_a_row_that_states_more_than_it_can_hold_takes_no_memory() -> None:
    with pytest.raises(ValueError, match="number of entries is invalid"):
        unpack_chunk(msgpack.packb([1 << 40, 5, 1, 1, 1]), "qqIq", False)
    raw = (5).to_bytes(16, "big")
    with pytest.raises(ValueError, match="10 bytes cannot hold 1099511627776 entries"):
        unpack_page(5, msgpack.packb([0, raw, raw, [1 << 40], [10], []]))


@pytest.mark.parametrize("words", [["info"], ["digest"], ["state"]], ids=" ".join)
def test_a_row_whose_contents_are_wrong(run: Run, tmp_path: Path, words: list[str]) -> None:
    with tidelog.open(tmp_path / "db") as store:
        store.xadd("s", {"f": "v"}, id="1-0")
        store.checkpoint()
    wrong = {stream_row(1): msgpack.packb(["no", "stream"])}
    without_sums(tmp_path / "db" / CHECKPOINT, put=wrong)
    done = run(*words, tmp_path / "db")
    assert (done.code, done.err.count("\n")) == (exits.DAMAGED, 1), done.err
