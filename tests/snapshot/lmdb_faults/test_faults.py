"""The means themselves, tried on plain LMDB: it keeps what it promised, and the faults would show if it did not."""

from __future__ import annotations

import errno
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from tests.rounds import some_and_all
from tests.snapshot.lmdb_faults.faults import Ended, run_with_fault

from tidelog.crash.preload.faults import Mode

CHILD = Path(__file__).with_name("lmdb_child.py")
BEFORE = 3  # commits in the environment that is there already
MORE = 2  # commits of the process under test

# directory -> how it ended, the commits that had been promised
Tried = dict[Path, tuple[Ended, int]]


def child(directory: Path, commits: int = MORE, sync: str = "sync") -> list[str]:
    return [sys.executable, str(CHILD), "write", str(directory), str(commits), sync]


def look(directories: list[Path]) -> list[str]:
    """The rows of each environment, as the child reads them."""
    done = subprocess.run(
        [sys.executable, CHILD, "look", *directories], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@pytest.fixture
def used(tmp_path: Path) -> Path:
    """An environment with commits in it, and free pages."""
    directory = tmp_path / "used"
    assert run_with_fault(child(directory, BEFORE)).code == 0
    return directory


def test_without_a_fault_all_calls_are_counted(tmp_path: Path) -> None:
    done = run_with_fault(child(tmp_path / "new"))
    assert (done.killed, done.code, done.out) == (False, 0, "1\n2\n")
    made = [(call.operation, call.offset) for call in done.calls]
    assert made[0] == ("pwrite", 0)  # both meta pages
    assert made[1:4] == [("writev", 8192), ("fdatasync", 0), ("pwrite", 4096 + 32)]
    assert {call.path for call in done.calls} == {str(tmp_path / "new" / "data.mdb")}
    assert all(call.length for call in done.calls if "write" in call.operation)


def tried(start: Path | None, root: Path, modes: list[tuple[Mode, int]]) -> Tried:
    """Every call of the child times every mode and seed, each in a directory of its own."""

    def place(name: str) -> Path:
        if start is not None:
            shutil.copytree(start, root / name)
        return root / name

    promised = BEFORE if start is not None else 0
    total = len(run_with_fault(child(place("whole"))).calls)
    found: Tried = {}
    for nth in range(1, total + 1):
        for mode, seed in modes:
            directory = place(f"{nth}-{mode.value}-{seed}")
            ended = run_with_fault(child(directory), nth, mode, seed=seed)
            assert ended.killed and len(ended.calls) == nth, ended
            found[directory] = ended, max([promised, *map(int, ended.out.split())])
    return found


@pytest.mark.parametrize("power_seeds", some_and_all(1, 4))
@pytest.mark.parametrize("new", [True, False], ids=["new", "used"])
def test_killed_anywhere_what_was_promised_is_there(
    tmp_path: Path, used: Path, new: bool, power_seeds: int
) -> None:
    modes = [(Mode.BEFORE, 0), (Mode.AFTER, 0), (Mode.TORN, 0)]
    modes += [(Mode.POWER, seed) for seed in range(power_seeds)]
    runs = tried(None if new else used, tmp_path, modes)
    for (directory, (ended, promised)), state in zip(runs.items(), look(list(runs)), strict=True):
        if (
            new
            and not promised
            and "fdatasync" not in [call.operation for call in ended.calls[:-1]]
        ):
            continue  # the environment itself was still being made, which LMDB does without a sync
        assert state in (str(promised), str(promised + 1)), (directory.name, ended)


def test_a_process_that_does_not_sync_loses_by_a_power_cut(tmp_path: Path, used: Path) -> None:
    """That is, the cut cuts: with the same faults, LMDB without its syncs breaks its promise, and worse."""
    lost = []
    for seed in range(1, 9):
        directory = tmp_path / str(seed)
        shutil.copytree(used, directory)
        total = 4 * MORE
        ended = run_with_fault(child(directory, 9, "no"), total, Mode.POWER, seed=seed)
        assert ended.killed
        lost.append(int(ended.out.split()[-1]))
        assert "fdatasync" not in {call.operation for call in ended.calls}
    states = look([tmp_path / str(seed) for seed in range(1, 9)])
    assert any(state != str(commits) for state, commits in zip(states, lost, strict=True))
    assert str(BEFORE) in states  # nothing of it was kept
    assert any(state.isdigit() and int(state) >= BEFORE + 2 for state in states)  # or all


def test_the_same_seed_leaves_the_same(tmp_path: Path, used: Path) -> None:
    left = []
    for name in "ab":
        shutil.copytree(used, tmp_path / name)
        assert run_with_fault(child(tmp_path / name), 2, Mode.POWER, seed=3).killed
        left.append((tmp_path / name / "data.mdb").read_bytes())
    assert left[0] == left[1]


def test_an_error_is_returned_once(tmp_path: Path, used: Path) -> None:
    ended = run_with_fault(child(used), 1, Mode.ERROR, error=errno.ENOSPC)
    assert (ended.killed, ended.code, ended.out) == (False, 1, "")
    assert "No space left on device" in ended.err
    assert look([used]) == [str(BEFORE)]
    assert run_with_fault(child(used)).out == "4\n5\n"


SCRIPT = """
import os, sys
fd = os.open(sys.argv[1] + "/one.aof", os.O_RDWR | os.O_CREAT | (os.O_APPEND if "append" in sys.argv else 0))
os.write(fd, b"a" * 600)
os.pwritev(fd, [b"b" * 300, b"b" * 300], 600)
os.fdatasync(fd)
durable = os.open(sys.argv[1] + "/one.aof", os.O_RDWR | os.O_DSYNC)
os.pwrite(fd, b"c" * 600, 1200)
os.pwrite(durable, b"d" * 10, 1300)
os.ftruncate(fd, 5000)
other = os.open(sys.argv[1] + "/two.aof", os.O_RDWR | os.O_CREAT)
os.write(other, b"e" * 2000)
os.posix_fallocate(other, 0, 4000)
os.fsync(other)
os.write(os.open(sys.argv[1] + "/three.txt", os.O_RDWR | os.O_CREAT), b"not watched")
os.write(fd, b"!")
"""


def script(directory: Path, nth: int, mode: Mode, seed: int = 0) -> Ended:
    directory.mkdir()
    argv = [sys.executable, "-c", SCRIPT, str(directory)]
    return run_with_fault(argv, nth, mode, seed=seed, paths=[".mdb", ".aof"])


def test_files_of_several_kinds_lose_power_together(tmp_path: Path) -> None:
    whole = script(tmp_path / "whole", 0, Mode.BEFORE)
    assert [call.operation for call in whole.calls] == [
        *("write", "pwritev", "fdatasync", "pwrite", "pwrite", "ftruncate"),
        *("write", "fallocate", "fsync", "write"),
    ]
    first = set()
    for seed in range(24):
        directory = tmp_path / str(seed)
        assert script(directory, 10, Mode.POWER, seed).killed
        one, two = (directory / "one.aof").read_bytes(), (directory / "two.aof").read_bytes()
        assert two == b"e" * 2000 + bytes(2000)  # synced
        assert one[:600].replace(b"!", b"a") == b"a" * 600
        assert one[601:1200] == b"b" * 599  # synced
        assert one[1300:1310] == b"d" * 10  # O_DSYNC
        assert set(one[1200:1300]) <= {0, ord("c")}
        first.add((len(one), one[1200:1201], one[1700:1701]))
        assert (directory / "three.txt").read_bytes() == b"not watched"
    assert {size for size, *_ in first} == {1310, 1536, 1800, 5000}  # 1536: the end of a sector
    assert (1310, b"\0", b"") in first  # neither the write nor the new size was kept
    assert len(first) > 3


def test_nothing_is_kept_of_a_file_that_was_never_synced(tmp_path: Path) -> None:
    sizes = set()
    for seed in range(12):
        assert script(tmp_path / str(seed), 2, Mode.POWER, seed).killed
        sizes.add((tmp_path / str(seed) / "one.aof").stat().st_size)
    assert {0, 1200} <= sizes


def test_a_torn_write_is_cut_between_pages(tmp_path: Path) -> None:
    source = (
        "import os, sys\nfd = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT)\n"
        "os.pwrite(fd, b'a' * 6000, 0)\nos.pwrite(fd, b'b' * 9000, 6000)\nos.pwrite(fd, b'c' * 99, 20)"
    )
    left = {}
    for nth in (1, 2, 3):
        path = tmp_path / f"{nth}.mdb"
        argv = [sys.executable, "-c", source, str(path)]
        assert run_with_fault(argv, nth, Mode.TORN, paths=[".mdb"]).killed
        left[nth] = path.read_bytes()
    assert left == {1: b"", 2: b"a" * 6000 + b"b" * 2192, 3: b"a" * 6000 + b"b" * 9000}
