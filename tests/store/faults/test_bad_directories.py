"""Directories that cannot be opened: one exception that says which file, where, and what to do; nothing is changed."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest

import tidelog
from tidelog.disk.real import RealDisk
from tidelog.engine.crc32c import crc32c_of


def make(path: Path) -> Path:
    """A store of two lives and several segments."""
    for _ in range(2):
        with tidelog.open(path, segment_bytes=4096) as db:
            for n in range(50):
                db.xadd("s", {"n": n, "text": "x" * 100})
    return path


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make(tmp_path_factory.mktemp("made") / "good")


@pytest.fixture(scope="module")
def stranger(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make(tmp_path_factory.mktemp("made") / "stranger")


@pytest.fixture
def root(tmp_path: Path, good: Path) -> Path:
    return Path(shutil.copytree(good, tmp_path / "s"))


def segment(root: Path, at: int) -> Path:
    return sorted((root / "aof").glob("*.aof"))[at]


def flip(path: Path, at: int) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= 0x10
    path.write_bytes(data)


def newer_store(root: Path) -> None:
    text = (root / "STORE").read_bytes().replace(b"format 1", b"format 2")
    head = text[: text.index(b"crc32c ")]
    (root / "STORE").write_bytes(head + b"crc32c %08x\n" % crc32c_of(head))


def newer_segment(root: Path) -> None:
    data = bytearray(segment(root, 2).read_bytes())
    data[8] = 9
    data[76:80] = crc32c_of(bytes(data[:76])).to_bytes(4, "little")
    segment(root, 2).write_bytes(data)


def emptied(directory: Path) -> None:
    for path in directory.iterdir():
        path.unlink()


def without_segments(root: Path) -> None:
    for path in (root / "aof").glob("*.aof"):
        path.unlink()


def replaced_by_a_directory(path: Path) -> None:
    path.unlink()
    path.mkdir()


def replaced_by_a_file(path: Path) -> None:
    shutil.rmtree(path)
    path.write_bytes(b"x")


Damage = Callable[[Path], object]
DAMAGED, NEWER, REFUSED = tidelog.StoreDamaged, tidelog.NewerFormat, tidelog.CannotOpen
# name: (what happens to the store, the error's class, what its text says besides what to do)
# fmt: off
DAMAGES: dict[str, tuple[Damage, type[tidelog.CannotOpen], str]] = {
    "STORE missing":      (lambda r: (r / "STORE").unlink(), DAMAGED, "STORE, byte 0: the file is missing"),
    "STORE empty":        (lambda r: (r / "STORE").write_bytes(b""), DAMAGED, "STORE, byte 0: "),
    "STORE damaged":      (lambda r: flip(r / "STORE", 30), DAMAGED, "STORE, byte 0: "),
    "STORE newer":        (newer_store, NEWER, "STORE has format version 2"),
    "STORE a directory":  (lambda r: replaced_by_a_directory(r / "STORE"), REFUSED, "STORE: found a directory"),
    "aof missing":        (lambda r: shutil.rmtree(r / "aof"), DAMAGED, "aof, byte 0: the directory"),
    "aof a file":         (lambda r: replaced_by_a_file(r / "aof"), REFUSED, "aof: found a plain file where"),
    "aof emptied":        (lambda r: emptied(r / "aof"), DAMAGED, "all segments and the file DURABLE are missing"),
    "segments missing":   (without_segments, DAMAGED, "DURABLE proves that records through"),
    "first missing":      (lambda r: segment(r, 0).unlink(), DAMAGED, "the segments before this one are missing"),
    "middle missing":     (lambda r: segment(r, 2).unlink(), DAMAGED, "a segment is missing here"),
    "last missing":       (lambda r: segment(r, -1).unlink(), DAMAGED, "DURABLE proves that records through"),
    "segment empty":      (lambda r: segment(r, 2).write_bytes(b""), DAMAGED, "inside the segment's header"),
    "segment junk":       (lambda r: segment(r, 2).write_bytes(b"junk" * 99), DAMAGED, "does not begin like a segment"),
    "segment renamed":    (lambda r: segment(r, 2).rename(r / f"aof/{9999:020}.aof"), DAMAGED, "9999.aof, byte 40"),
    "segment newer":      (newer_segment, NEWER, "format version 9"),
    "segment truncated":  (lambda r: os.truncate(segment(r, 2), 300), DAMAGED, ".aof, byte "),
    "segment a directory": (lambda r: replaced_by_a_directory(segment(r, 2)), REFUSED, ".aof: found a directory where"),
    "header damaged":     (lambda r: flip(segment(r, 2), 20), DAMAGED, ".aof, byte 0: "),
    "frame damaged":      (lambda r: flip(segment(r, 2), 200), DAMAGED, ".aof, byte 80: "),
    "last frame damaged": (lambda r: flip(segment(r, -1), 200), DAMAGED, ".aof, byte 80: "),
}
# fmt: on


def contents(root: Path) -> dict[str, bytes | None]:
    return {
        str(p.relative_to(root)): p.read_bytes() if p.is_file() else None
        for p in root.rglob("*")
        if p.name != "LOCK"
    }


@pytest.mark.parametrize("name", DAMAGES)
def test_damage_is_refused_with_file_place_and_advice(root: Path, name: str) -> None:
    damage, kind, text = DAMAGES[name]
    damage(root)
    before = contents(root)
    for read_only in (False, True):
        with pytest.raises(tidelog.CannotOpen) as caught:
            tidelog.open(root, read_only=read_only)
        assert type(caught.value) is kind
        told = str(caught.value)
        assert text in told and str(root) in told and "\n" not in told
        assert kind is not tidelog.StoreDamaged or f"tidelog repair {root}" in told
    assert contents(root) == before


def test_a_segment_of_another_store(root: Path, stranger: Path) -> None:
    foreign = segment(stranger, 1)
    shutil.copy(foreign, root / "aof")
    with pytest.raises(tidelog.StoreDamaged, match=rf"{foreign.name}, byte 16: .* another store"):
        tidelog.open(root)


def test_without_durable_the_store_opens(root: Path, stranger: Path, good: Path) -> None:
    """It only proves; there is no data in it."""
    for data in (None, b"", b"\xff" * 8192, (stranger / "aof/DURABLE").read_bytes()):
        (root / "aof/DURABLE").unlink()
        if data is not None:
            (root / "aof/DURABLE").write_bytes(data)
        with tidelog.open(root, read_only=True) as db:
            assert db.xlen("s") == 100
        with tidelog.open(root) as db:
            assert db.xlen("s") == 100


def test_what_lies_beside_is_nobodys_business(root: Path) -> None:
    (root / "notes.txt").write_text("x")
    (root / "aof/notes.txt").write_text("x")
    (root / "LOCK").write_text("99999999\n")  # a dead process, or none
    with tidelog.open(root) as db:
        assert db.xlen("s") == 100


def test_paths_that_are_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for path in ("", "a\0b"):
        with pytest.raises(tidelog.DataError, match="cannot be the path"):
            tidelog.open(path)
    with pytest.raises(TypeError):
        tidelog.open(None)  # type: ignore[call-overload]
    with pytest.raises(tidelog.CannotOpen, match="no/such: .*create the parent directory"):
        tidelog.open(tmp_path / "no" / "such")
    (tmp_path / "file").write_text("x")
    for read_only in (False, True):
        with pytest.raises(
            tidelog.NotAStore, match="file is not a tidelog store: it is not a directory"
        ):
            tidelog.open(tmp_path / "file", read_only=read_only)
    with pytest.raises(tidelog.CannotOpen, match="a part of the path is a file"):
        tidelog.open(tmp_path / "file" / "s")
    (tmp_path / "nowhere").symlink_to("nothing")
    with pytest.raises(tidelog.CannotOpen, match="symbolic link"):
        tidelog.open(tmp_path / "nowhere")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["file", "nowhere"]
    with pytest.raises(tidelog.DataError, match="segment_bytes"):
        tidelog.open(tmp_path / "s", segment_bytes=1 << 70)
    with pytest.raises(tidelog.DataError, match="segment_bytes"):
        tidelog.open(tmp_path / "s", segment_bytes="1M")  # type: ignore[call-overload]


def test_odd_names_and_links(tmp_path: Path) -> None:
    path = tmp_path / "we ird;$(x)\"'\n-é"
    (tmp_path / "link").symlink_to(path.name)
    path.mkdir()
    with tidelog.open(tmp_path / "link") as db:
        db.xadd("a\0b\nc", {"x\0\n": "y"})
        with pytest.raises(tidelog.StoreLocked, match=f"process {os.getpid()}"):
            tidelog.open(path)
    with tidelog.open(os.fsencode(path)) as db:  # type: ignore[call-overload]
        assert db.xlen(b"a\0b\nc") == 1
    flip(segment(path, 0), 90)
    with pytest.raises(tidelog.StoreDamaged) as caught:
        tidelog.open(path)
    # Its advice can be pasted into a shell.
    assert str(caught.value).endswith(f"tidelog repair {shlex.quote(str(path / 'aof'))}")


def test_where_writing_is_not_allowed(root: Path) -> None:
    """As another user: no writing, and reading where the files allow it."""
    program = (
        "import os, sys, tidelog\n"
        # They load what is loaded late, from where nobody may read.
        "tidelog.open(sys.argv[1]).close()\n"
        "tidelog.open(sys.argv[1], read_only=True).close()\n"
        "os.setgid(65534) if os.getuid() == 0 else None\n"
        "os.setuid(65534) if os.getuid() == 0 else None\n"
        "try:\n"
        "    tidelog.open(sys.argv[2])\n"
        "except tidelog.CannotOpen as error:\n"
        "    print(error)\n"
        "print(tidelog.open(sys.argv[2], read_only=True).xlen('s'))\n"
    )
    before = contents(root)
    # Nobody may go through pytest's own directories.
    with tempfile.TemporaryDirectory() as place:
        copy = Path(shutil.copytree(root, Path(place) / "s"))
        Path(place).chmod(0o555)
        for path in (copy, *copy.rglob("*")):
            path.chmod(0o555 if path.is_dir() else 0o444)
        done = subprocess.run(
            [sys.executable, "-c", program, str(root), str(copy)],
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
            capture_output=True,
            text=True,
        )
        assert contents(copy) == before
        for path in (Path(place), copy, *copy.rglob("*")):
            path.chmod(0o700 if path.is_dir() else 0o600)
    error, length = done.stdout.splitlines()
    assert f"{copy}/LOCK: Permission denied" in error and "to read it, use read_only=True" in error
    assert length == "100"


def test_errors_of_the_system_name_the_file(tmp_path: Path) -> None:
    """Also those of calls that know only a descriptor."""
    disk = RealDisk()
    (tmp_path / "d").mkdir()
    file = disk.open(tmp_path / "d")
    with pytest.raises(IsADirectoryError) as caught:
        file.pread(1, 0)
    assert caught.value.filename == str(tmp_path / "d")
    file.close()
