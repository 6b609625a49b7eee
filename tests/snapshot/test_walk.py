"""Tests of the walk: sound files pass, and whatever is damaged is told, also if it kills who reads it."""

from __future__ import annotations

import random
import struct
import threading
from pathlib import Path

import pytest
from tests.rounds import rest_slow
from tests.snapshot.histories import World, some_commands
from tests.snapshot.world import DISK, without_sums

from tidelog.disk.simulated import SimulatedDisk
from tidelog.engine import rowkeys
from tidelog.snapshot import walk as module
from tidelog.snapshot.child import start_child
from tidelog.snapshot.errors import CheckpointError
from tidelog.snapshot.walk import WalkFinding, walk


@pytest.fixture(autouse=True)
def real_children(monkeypatch: pytest.MonkeyPatch) -> None:
    """The walks are processes that are started, as users have them. Other files of tests fork them (tests/walks.py)."""
    monkeypatch.setattr(module, "start_child", start_child)


def made(folder: Path, seed: int = 1) -> None:
    world = World(folder)
    rng = random.Random(seed)
    for _ in range(3):
        some_commands(world.engine, rng, 60)
        world.checkpoint()
    for n in range(3000):
        world.engine(f"XADD long {n + 1}-1 field value-{n}")
    world.engine("XGROUP CREATE long g 0")
    world.engine("XREADGROUP GROUP g c COUNT 2500 STREAMS long >")
    world.checkpoint()
    world.close()
    without_sums(folder)  # so that each row has to be missed by itself


def findings(folder: Path) -> list[WalkFinding]:
    return list(walk(DISK, folder))


def test_sound_files_pass(tmp_path: Path) -> None:
    for seed in range(3):
        made(tmp_path / str(seed), seed)
        assert findings(tmp_path / str(seed)) == []


def test_no_thread_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A watch that is called off takes a moment to end."""

    class Slow(threading.Timer):
        def run(self) -> None:
            super().run()
            threading.Event().wait(0.3)

    made(tmp_path)
    before = {*threading.enumerate()}
    monkeypatch.setattr(threading, "Timer", Slow)
    assert findings(tmp_path) == []
    assert {*threading.enumerate()} == before


def test_every_row_that_goes_is_missed(tmp_path: Path) -> None:
    made(tmp_path)
    world = World(tmp_path)
    rows = list(world.rows.rows(b""))
    world.close()
    rng = random.Random(4)
    chosen = []
    for kind in (b"!", b"k", b"e", b"s", b"p", b"d", b"g", b"c"):
        of_kind = [row for row in rows if row[0].startswith(kind)]
        chosen += rng.sample(of_kind, min(1, len(of_kind)))
    for key, payload in chosen:
        world = World(tmp_path)
        writing = world.env.write()
        writing.delete(key)
        writing.commit()
        world.close()
        assert findings(tmp_path), key
        world = World(tmp_path)
        writing = world.env.write()
        writing.put(key, payload)
        writing.commit()
        world.close()
    assert findings(tmp_path) == []


def test_what_is_damaged_is_named(tmp_path: Path) -> None:
    made(tmp_path)
    path = tmp_path / "data.mdb"
    data = bytearray(path.read_bytes())
    at = data.rindex(b"value-1234")
    data[at + 6] ^= 1
    path.write_bytes(data)
    found = findings(tmp_path)
    assert found and found[0].stream is not None and found[0].first is not None
    assert "does not match its checksum" in found[0].text and str(path) in found[0].text
    assert "key b'long', " in found[0].text
    assert any(one.block is not None for one in found)


def test_rows_of_nobody(tmp_path: Path) -> None:
    made(tmp_path)
    world = World(tmp_path)
    writing = world.env.write()
    writing.put(rowkeys.group_row(10**6, 1), b"")
    writing.commit()
    world.close()
    assert "belong to no stream or group" in findings(tmp_path)[0].text


@pytest.mark.parametrize("seed", rest_slow(range(8), 2))
def test_random_damage_never_reaches_the_parent(tmp_path: Path, seed: int) -> None:
    made(tmp_path)
    path = tmp_path / "data.mdb"
    data = bytearray(path.read_bytes())
    rng = random.Random(seed)
    for _ in range(40):  # pages of trees are hit as well
        page = rng.randrange(2, len(data) // 4096)
        at = page * 4096 + rng.choice((10, 12, 14, 16, 18, rng.randrange(4096)))
        struct.pack_into("=H", data, min(at, len(data) - 2), rng.getrandbits(16))
    path.write_bytes(data)
    assert findings(tmp_path)


def test_a_child_that_dies_or_hangs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made(tmp_path)
    for code, reason in (
        ("import os, signal; os.kill(os.getpid(), signal.SIGBUS)", "SIGBUS"),
        ("import time; time.sleep(100)", "hung"),
        ("print('nonsense')", "invalid result"),
        ("raise SystemExit('why')", "why"),
    ):
        monkeypatch.setattr(module, "SILENT_S", 1.0 if reason == "hung" else 120.0)
        monkeypatch.setattr(module, "COMMAND", ("-c", code))
        assert reason in findings(tmp_path)[0].text


def test_it_needs_no_thread(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made(tmp_path)

    def refused(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refused)
    assert findings(tmp_path) == []


def test_what_cannot_be_walked(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        findings(tmp_path)
    with pytest.raises(CheckpointError):
        list(walk(SimulatedDisk(), tmp_path))
    (tmp_path / "data.mdb").write_bytes(b"something else" * 1000)
    assert "not an LMDB file" in findings(tmp_path)[0].text
