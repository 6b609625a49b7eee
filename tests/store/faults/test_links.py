"""Links, FIFOs, sockets, devices and directories in the place of a store's files: refused, by all that reads or writes.

One error names the path, what lies there and what to do. Nothing outside the store changes, and nothing hangs.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import tidelog
from tidelog.disk.real import RealDisk
from tidelog.snapshot.errors import SnapshotDamaged, SnapshotError
from tidelog.snapshot.portable import prune, read_snapshot, snapshots
from tidelog.snapshot.restore import restore
from tidelog.snapshot.scrub import verify_snapshot, verify_store

PRECIOUS = b"somebody else's data, longer than a process's number\n"
SECONDS = 30  # in which a command that does not hang ends, on a busy machine

FILES = ("STORE", "LOCK", "aof/DURABLE", "aof/spare", "checkpoint/data.mdb", "checkpoint/lock.mdb")
FOLDERS = ("aof", "checkpoint", "snapshots", "snapshots/work", "snapshots/fold", "quarantine")
SEGMENT = "aof/SEGMENT"  # stands for the last one


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store of several segments, with a checkpoint and a snapshot, and a name for everything."""
    root = tmp_path_factory.mktemp("made") / "good"
    with tidelog.open(root, segment_bytes=4096) as db:
        for n in range(50):
            db.xadd("s", {"n": n, "text": "x" * 100})
        db.snapshot()
        db.xadd("s", {"n": 50})
    (root / "aof" / "spare").write_bytes(b"")
    for name in FOLDERS:
        (root / name).mkdir(exist_ok=True)
    return root


@pytest.fixture
def root(tmp_path: Path, good: Path) -> Path:
    return Path(shutil.copytree(good, tmp_path / "s"))


def place(root: Path, name: str) -> Path:
    return sorted((root / "aof").glob("*.aof"))[-1] if name == SEGMENT else root / name


def taken_away(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def link(path: Path) -> None:
    """A link to a whole copy of what was there, so that all would be well if it were followed."""
    elsewhere = path.with_name(f"{path.name}.elsewhere")
    path.rename(elsewhere)
    path.symlink_to(elsewhere)


def dangling(path: Path) -> None:
    taken_away(path)
    path.symlink_to(path.with_name("nowhere"))


def fifo(path: Path) -> None:
    taken_away(path)
    os.mkfifo(path)


def a_socket(path: Path) -> None:
    taken_away(path)
    with socket.socket(socket.AF_UNIX) as listening:
        at = os.getcwd()
        os.chdir(path.parent)  # its address may have a hundred bytes
        try:
            listening.bind(path.name)
        finally:
            os.chdir(at)


def device(path: Path) -> None:
    taken_away(path)
    path.symlink_to("/dev/zero")  # a node of its own needs rights that not every user has


def directory(path: Path) -> None:
    taken_away(path)
    path.mkdir()


def file(path: Path) -> None:
    taken_away(path)
    path.write_bytes(PRECIOUS)


MAKERS: dict[str, tuple[Callable[[Path], object], str]] = {
    "link": (link, "a symbolic link"),
    "dangling link": (dangling, "a symbolic link"),
    "FIFO": (fifo, "a FIFO"),
    "socket": (a_socket, "a socket"),
    "link to a device": (device, "a symbolic link"),
    "directory": (directory, "a directory"),
}
CASES = [
    *((name, how) for name in (*FILES, SEGMENT) for how in MAKERS),
    *((name, how) for name in FOLDERS for how in ("link", "dangling link", "FIFO")),
]


def made(root: Path, name: str, how: str) -> tuple[Path, str]:
    path = place(root, name)
    make, kind = MAKERS[how]
    make(path)
    return path, kind


def refused_by(opening: Callable[[], object], path: Path, kind: str) -> None:
    with pytest.raises(tidelog.CannotOpen) as caught:
        opening()
    text = str(caught.value)
    assert text.startswith(f"{path}: found {kind} where a ") and "back under this name" in text, (
        text
    )


@pytest.mark.parametrize("name, how", CASES)
def test_opening_is_refused(root: Path, name: str, how: str) -> None:
    path, kind = made(root, name, how)
    refused_by(lambda: tidelog.open(root), path, kind)
    refused_by(lambda: tidelog.open(root, read_only=True), path, kind)


@pytest.mark.parametrize("name, how", CASES)
def test_verify_reports_what_opening_refuses(root: Path, name: str, how: str) -> None:
    path, kind = made(root, name, how)
    found = verify_store(RealDisk(), root)
    assert [(each.check, each.path) for each in found] == [("files", path)]
    assert kind in found[0].text


@pytest.mark.parametrize("name", ("checkpoint", "snapshots", "quarantine", "aof"))
def test_a_file_in_a_folders_place_is_refused_and_reported(root: Path, name: str) -> None:
    file(root / name)
    refused_by(lambda: tidelog.open(root), root / name, "a plain file")
    assert [each.path for each in verify_store(RealDisk(), root)] == [root / name]


@pytest.mark.parametrize(
    "name",
    ("aof/spare", "aof/DURABLE", "LOCK", "checkpoint/lock.mdb", "checkpoint/data.mdb"),
)
def test_what_a_link_leads_to_is_left_alone(root: Path, tmp_path: Path, name: str) -> None:
    precious = tmp_path / "precious"
    precious.write_bytes(PRECIOUS)
    taken_away(root / name)
    (root / name).symlink_to(precious)
    with pytest.raises(tidelog.CannotOpen):
        with tidelog.open(root) as db:
            db.xadd("s", {"n": 51})
            db.checkpoint()
    assert precious.read_bytes() == PRECIOUS


def test_a_link_that_appears_while_the_store_is_open_is_not_followed(tmp_path: Path) -> None:
    precious = tmp_path / "precious"
    precious.write_bytes(PRECIOUS)
    with tidelog.open(tmp_path / "s") as db:
        (tmp_path / "s" / "aof" / "spare").symlink_to(precious)  # which the first write would fill
        with pytest.raises(tidelog.NotStored, match="found a symbolic link where a file belongs"):
            db.xadd("s", {"n": 1})
        (tmp_path / "s" / "aof" / "spare").unlink()
        db.xadd("s", {"n": 2})
        assert db.xlen("s") == 1
    assert precious.read_bytes() == PRECIOUS


@pytest.mark.parametrize("name", ("work", "fold"))
def test_no_sweep_deletes_what_a_link_leads_to(root: Path, tmp_path: Path, name: str) -> None:
    precious = tmp_path / "precious"
    precious.mkdir()
    (precious / "data").write_bytes(PRECIOUS)
    with tidelog.open(root) as db:
        (root / "snapshots" / name).rmdir()
        (root / "snapshots" / name).symlink_to(precious)
        db.xadd("s", {"n": 52})
        with pytest.raises(
            tidelog.CheckpointFailed, match="found a symbolic link where a directory belongs"
        ):
            db.snapshot()
        with pytest.raises(OSError, match="found a symbolic link where a directory belongs"):
            disk = RealDisk()
            disk.guard(root)
            prune(disk, root / "snapshots", 0)
    assert (precious / "data").read_bytes() == PRECIOUS


def test_an_unfinished_restore_is_not_swept_through_a_link(root: Path, tmp_path: Path) -> None:
    precious, target = tmp_path / "precious", tmp_path / "new"
    precious.mkdir()
    (precious / "data").write_bytes(PRECIOUS)
    target.mkdir()
    (target / "RESTORING").write_bytes(b"")
    (target / "checkpoint").symlink_to(precious)
    (snapshot,) = (path for path in (root / "snapshots").iterdir() if path.name.isdigit())
    with pytest.raises(
        OSError, match="checkpoint: found a symbolic link where a directory belongs"
    ):
        restore(RealDisk(), snapshot, target)
    assert (precious / "data").read_bytes() == PRECIOUS


@pytest.mark.parametrize("name", ("manifest.json", "data.mdb"))
@pytest.mark.parametrize("how", MAKERS)
def test_a_snapshot_with_such_a_file_is_damaged(
    root: Path, tmp_path: Path, name: str, how: str
) -> None:
    (snapshot,) = (path for path in (root / "snapshots").iterdir() if path.name.isdigit())
    path, kind = made(snapshot, name, how)
    (found,) = snapshots(RealDisk(), root / "snapshots")
    assert isinstance(getattr(found, "error", None), SnapshotError) and kind in str(found)
    with pytest.raises(SnapshotDamaged, match=kind):
        read_snapshot(RealDisk(), snapshot)
    with pytest.raises(SnapshotDamaged, match=kind):
        restore(RealDisk(), snapshot, tmp_path / "new")
    assert [finding.check for finding in verify_snapshot(RealDisk(), snapshot)] == ["snapshot"]
    with pytest.raises(tidelog.StoreDamaged, match=kind):
        tidelog.open(snapshot, read_only=True)


def test_the_path_of_a_store_may_be_a_link(root: Path, tmp_path: Path) -> None:
    (tmp_path / "folder").symlink_to(tmp_path)
    (tmp_path / "here").symlink_to(tmp_path / "folder" / "s")
    with tidelog.open(tmp_path / "here") as db:
        db.xadd("s", {"n": 51})
        db.snapshot()
        assert db.verify() == []
    with tidelog.open(root, read_only=True) as db:
        assert db.xlen("s") == 52
    (snapshot, *_) = (path for path in (root / "snapshots").iterdir() if path.name.isdigit())
    (tmp_path / "kept").symlink_to(snapshot)
    with tidelog.open(tmp_path / "kept", read_only=True) as db:
        assert db.xlen("s") >= 50


def test_a_new_store_may_begin_at_a_link(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "here").symlink_to(tmp_path / "real")
    with tidelog.open(tmp_path / "here") as db:
        db.xadd("s", {"n": 1})
    assert (tmp_path / "real" / "STORE").is_file()


# Runs each of the command lines that its argument lists, and tells exit code and output of each.
CHILD = """
import contextlib, io, json, sys, traceback
from tidelog.tools.cli import run

told = []
for args in json.loads(sys.argv[1]):
    out = io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):
        try:
            code = run(args)
        except BaseException:
            code = None
            traceback.print_exc()
    told.append((code, out.getvalue()))
print(json.dumps(told))
"""


def commands(*each: tuple[str, ...], cwd: Path) -> list[tuple[int | None, str]]:
    """Exit code and output of commands of the tools, run in a child. One that hangs ends the test."""
    command = [sys.executable, "-c", CHILD, json.dumps(each)]
    done = subprocess.run(command, cwd=cwd, stdout=subprocess.PIPE, check=True, timeout=SECONDS)
    return [(code, text) for code, text in json.loads(done.stdout)]


READERS = (
    ("info", "s"),
    ("verify", "s"),
    ("aof", "ls", "s"),
    ("aof", "dump", "s"),
    ("aof", "verify", "s"),
    ("snapshot", "ls", "s"),
    ("snapshot", "create", "s"),
    ("digest", "s"),
)


@pytest.mark.parametrize("name", ("STORE", "aof/DURABLE", SEGMENT, "checkpoint/data.mdb"))
def test_no_command_hangs_at_a_fifo(root: Path, name: str) -> None:
    path = place(root, name)
    fifo(path)
    relative = path.relative_to(root.parent)
    for command, (code, told) in zip(READERS, commands(*READERS, cwd=root.parent)):
        assert code is not None, (command, told)
        if command[:2] == ("snapshot", "ls") and name != "STORE":
            continue  # it reads nothing of these
        if name == "checkpoint/data.mdb" and command[:2] in (("aof", "ls"), ("aof", "dump")):
            continue
        assert code != 0, command
        assert told.count(f"{relative}: found a FIFO where a file belongs") == 1, (command, told)


def test_verify_is_not_0_where_lock_is_a_directory(root: Path) -> None:
    directory(root / "LOCK")
    (code, told), (code_of_log, _) = commands(
        ("verify", "s", "--json"), ("aof", "verify", "s"), cwd=root.parent
    )
    (finding,) = json.loads(told)["findings"]
    assert finding["check"] == "files" and code == code_of_log == 33
