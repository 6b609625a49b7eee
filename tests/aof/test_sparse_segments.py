"""Segments that were extended to 3 GiB: read by windows, in memory for one frame, and past holes at once.

Everything runs in a child under RLIMIT_AS, and none of it may take long.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import tidelog
from tidelog.aof.reading.reader import Scan, segments
from tidelog.aof.reading.verdicts import Verdict
from tidelog.aof.reading.window import WINDOW_BYTES, Windows
from tidelog.disk.real import RealDisk

LONG = 3 << 30
MEMORY = 700 << 20  # of address space, of which the interpreter and its modules take 200 MiB
SECONDS = 60  # on a busy machine; about two on an idle one

CHILD = """
import contextlib, io, json, resource, sys, traceback
import tidelog
from tidelog.tools.cli import run

resource.setrlimit(resource.RLIMIT_AS, (int(sys.argv[1]),) * 2)
told = []
for args in json.loads(sys.argv[2]):
    out = io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):
        try:
            if args[0] == "open":
                with tidelog.open(args[1]) as db:
                    code = db.xlen("s")
            else:
                code = run(args)
        except tidelog.TidelogError as error:
            code = -1
            print(type(error).__name__, error)
        except BaseException:
            code = None
            traceback.print_exc()
    told.append((code, out.getvalue()))
print(json.dumps(told))
"""


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A store of several segments, without a checkpoint: LMDB's address space would be beyond the limit."""
    with tidelog.open(tmp_path / "s", segment_bytes=4096, fsync="no") as db:
        for n in range(50):
            db.xadd("s", {"n": n, "text": "x" * 100})
    return tmp_path / "s"


def paths(root: Path) -> list[Path]:
    return sorted((root / "aof").glob("*.aof"))


def limited(*each: tuple[str, ...], cwd: Path) -> list[tuple[int | None, str]]:
    """The answers of a child to each command. One that takes too long ends the test."""
    command = [sys.executable, "-c", CHILD, str(MEMORY), json.dumps(each)]
    done = subprocess.run(command, cwd=cwd, stdout=subprocess.PIPE, check=True, timeout=SECONDS)
    return [(code, text) for code, text in json.loads(done.stdout)]


READERS = (
    ("aof", "ls", "s"),
    ("aof", "dump", "s", "--limit", "3"),
    ("aof", "verify", "s"),
    ("info", "s"),
    ("verify", "s"),
)


# with their exit codes
OTHERS = {
    ("aof", "ls", "s", "--scan"): 0,
    ("aof", "ls", "s/aof/00000000000000000001.aof"): 0,
    ("aof", "dump", "s", "--reverse", "--limit", "3"): 0,
    ("aof", "stats", "s"): 0,
    ("state", "s", "--at-lsn", "9"): 0,
    ("why", "s", "s", "1-1"): 3,
    ("repair", "s"): 0,
}


@pytest.mark.parametrize("which", (0, -1))
def test_zeros_that_follow_change_nothing(root: Path, which: int) -> None:
    os.truncate(paths(root)[which], LONG)
    told = limited(*READERS, *OTHERS, ("open", "s"), cwd=root.parent)
    assert [code for code, _ in told] == [*[0] * len(READERS), *OTHERS.values(), 50], told


@pytest.mark.parametrize("name", ("STORE", "aof/DURABLE", "LOCK"))
def test_no_other_file_is_read_whole(root: Path, name: str) -> None:
    os.truncate(root / name, LONG)
    told = limited(*READERS, ("open", "s"), cwd=root.parent)
    assert None not in [code for code, _ in told], told
    if name == "STORE":
        assert told[-1][1].startswith("StoreDamaged ") and "the file is incomplete" in told[-1][1]
    else:
        assert told[-1][0] == 50, told


def test_a_torn_tail_far_behind_goes_to_quarantine_with_its_holes(root: Path) -> None:
    last = paths(root)[-1]
    whole = last.stat().st_size
    os.truncate(last, LONG)
    with last.open("r+b") as file:
        file.seek(LONG - 7)
        file.write(b"garbage")
    told = limited(*READERS[:-1], ("open", "s"), cwd=root.parent)
    assert None not in [code for code, _ in told] and told[-1][0] == 50, told
    assert f"{LONG - whole} bytes of an unfinished write" in told[2][1]
    (kept,) = (root / "quarantine").iterdir()
    assert kept.stat().st_size == LONG - whole and kept.stat().st_blocks * 512 < 16 << 20
    with kept.open("rb") as file:
        file.seek(-9, os.SEEK_END)
        assert file.read() == b"\0\0garbage"
    assert paths(root)[-1] != last or last.stat().st_size < LONG


def test_damage_before_a_long_hole_is_named_and_repaired(root: Path) -> None:
    first = paths(root)[0]
    with first.open("r+b") as file:
        file.seek(1000)
        file.write(b"\xff")
    os.truncate(first, LONG)
    told = limited(
        *READERS,
        ("repair", "s", "--to", "new"),
        ("open", "s"),
        ("open", "new"),
        cwd=root.parent,
    )
    assert None not in [code for code, _ in told], told
    assert told[-2][1].startswith("StoreDamaged ") and first.name in told[-2][1]
    assert 0 < (told[-1][0] or 0) < 50, told


@pytest.mark.parametrize("length", (WINDOW_BYTES - 700, WINDOW_BYTES, 3 * WINDOW_BYTES + 1))
def test_frames_are_whole_wherever_a_window_ends(tmp_path: Path, length: int) -> None:
    sizes = [10, length, 500, 7, length, 100_000] + [331_337] * 9
    with tidelog.open(tmp_path / "s", fsync="no") as db:
        for size in sizes:
            db.xadd("s", {"text": "x" * size})
        disk = RealDisk()
        uuid = bytes.fromhex((tmp_path / "s" / "STORE").read_text().split("uuid ")[1][:32])
        (info,) = segments(disk, tmp_path / "s" / "aof", uuid)
        for live in (True, False):
            scan = Scan(disk, info, live=live)
            found = [len(frame.body) for frame in scan.frames()]
            assert scan.verdict is Verdict.END and len(found) == len(sizes) + 1  # and an EPOCH
            assert all(size <= nbytes < size + 100 for size, nbytes in zip(sizes, found[1:]))
    with tidelog.open(tmp_path / "s", read_only=True) as db:
        assert db.xlen("s") == len(sizes)


def test_what_lies_across_the_end_of_a_window_is_found(tmp_path: Path) -> None:
    path = tmp_path / "f"
    for start in range(WINDOW_BYTES - 5, WINDOW_BYTES + 2):
        path.write_bytes(bytes(start) + b"\x01\x02\x03\x04" + bytes(3 * WINDOW_BYTES))
        windows = Windows(RealDisk(), path)
        assert windows.find(b"\x01\x02\x03\x04", 0) == start
        assert windows.find(b"\x01\x02\x03\x04", start + 1) == -1
        assert windows.data_end(0) == start + 4
        assert windows.blank(start + 4) and not windows.blank(start + 3) and not windows.blank(0)
        windows.close()
