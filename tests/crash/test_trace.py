"""A trace comes back from its file as it was, and a file that is no whole trace is one clear error."""

from __future__ import annotations

from pathlib import Path

import pytest

from tidelog.crash.errors import BadTrace
from tidelog.crash.trace import (
    HEADER,
    MAGIC,
    Create,
    Mkdir,
    Promised,
    Rename,
    Size,
    SyncBegin,
    SyncEnd,
    Trace,
    Unlink,
    Write,
    load,
    pack,
    save,
    unpack,
)
from tidelog.disk.real import RealDisk

TRACE = Trace(
    {"seed": "7", "policy": "no"},
    {"store": None, "store/a": b"old"},
    [[["set", b"k", b"v"]]],
    [
        Promised(0, 0, 1),
        Mkdir(3, 1, "aof"),
        Create(4, 3, "1.aof"),
        Write(4, 5, b"data"),
        Size(4, 2),
        Rename(4, 3, "1.aof", 1, "b"),
        SyncBegin(0, 4, 0, 512),
        SyncEnd(0),
        Unlink(2, 1, "a"),
    ],
)


def test_a_trace_comes_back_from_its_file(tmp_path: Path) -> None:
    save(RealDisk(), tmp_path / "trace", TRACE)
    assert load(RealDisk(), tmp_path / "trace") == TRACE


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "is not a trace"),
        (b"SQLite format 3\0" + bytes(100), "is not a trace"),
        (pack(TRACE)[:-1], "was cut: 1 of"),
        (pack(TRACE)[: HEADER.size], "was cut"),
        (pack(TRACE) + b"x", "1 bytes behind its end"),
        (HEADER.pack(MAGIC, 2, 0, 0), "version 2"),
    ],
)
def test_a_file_that_is_no_whole_trace(data: bytes, words: str) -> None:
    with pytest.raises(BadTrace, match=words) as error:
        unpack(data, "some.trace")
    assert "some.trace" in str(error.value)
    assert "\n" not in str(error.value)


def test_every_changed_byte_is_noticed() -> None:
    data = pack(TRACE)
    for at in range(len(data)):
        with pytest.raises(BadTrace):
            unpack(data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :], "some.trace")
