"""Tests of the environment: sharing, forks, rows with checksums, errors in words."""

from __future__ import annotations

import errno
import gc
import os
import random
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path
from typing import NoReturn

import lmdb
import pytest
from tests.rounds import some_and_all
from tests.snapshot.world import DISK, cold, environment, write

from tidelog.disk.real import RealDisk, RealFile
from tidelog.disk.simulated import SimulatedDisk
from tidelog.engine.errors import CorruptBlock
from tidelog.snapshot import portable
from tidelog.snapshot.errors import CheckpointError
from tidelog.snapshot.rows import environment as module
from tidelog.snapshot.rows.environment import ColdRows, open_environment

ROWS = {b"p%03d" % i: b"payload %d" % i * (i % 40) for i in range(500)}


def test_rows(tmp_path: Path) -> None:
    with environment(tmp_path / "c") as env, cold(env) as rows:
        assert rows.get(b"p001") is None and rows.before(b"p", b"p") is None
        assert rows.after(b"p", b"p") is None and list(rows.rows(b"p")) == []
        write(env, {**ROWS, b"a": b"", b"z": b"end"})
        assert rows.get(b"p001") is None, "only `renew` shows a commit"
        rows.renew()
        assert rows.get(b"p007") == ROWS[b"p007"]
        assert rows.get(b"a") == b""
        assert list(rows.rows(b"p")) == sorted(ROWS.items())
        assert list(rows.rows(b"p", b"p4935")) == sorted(ROWS.items())[494:]
        assert list(rows.rows(b"q")) == []
        assert rows.before(b"p0035", b"p") == (b"p003", ROWS[b"p003"])
        assert rows.before(b"p003", b"p") == (b"p003", ROWS[b"p003"])
        assert rows.before(b"p", b"p") is None, "the row before begins with another prefix"
        assert rows.before(b"zzz", b"z") == (b"z", b"end")
        assert rows.before(b"y", b"p") == (b"p499", ROWS[b"p499"])
        assert rows.after(b"p0035", b"p") == (b"p004", ROWS[b"p004"])
        assert rows.after(b"", b"p") == (b"p000", ROWS[b"p000"])
        assert rows.after(b"p5", b"p") is None and rows.after(b"zz", b"z") is None


def test_rows_go_on_over_a_commit(tmp_path: Path) -> None:
    with environment(tmp_path / "c") as env, cold(env) as rows:
        write(env, ROWS)
        rows.renew()
        walk = rows.rows(b"p")
        first = [next(walk) for _ in range(10)]
        write(env, {b"p999": b"new"})
        rows.renew()
        assert first + list(walk) == [*sorted(ROWS.items()), (b"p999", b"new")]


def test_deleting(tmp_path: Path) -> None:
    with environment(tmp_path / "c") as env, cold(env) as rows:
        write(env, {**ROWS, b"q": b"1"})
        writing = env.write()
        assert writing.delete(b"q") and not writing.delete(b"q")
        assert writing.delete_some(b"p", 100)
        assert writing.delete_some(b"p", 300)
        assert not writing.delete_some(b"p", 101)
        assert not writing.delete_some(b"p", 101)
        writing.abort()
        writing.abort()
        assert list(rows.rows(b"q")) == []
        writing = env.write()
        while writing.delete_some(b"p", 64):
            pass
        writing.commit()
        rows.renew()
        assert list(rows.rows(b"")) == [(b"q", b"1")]


def test_one_environment_per_file(tmp_path: Path) -> None:
    (tmp_path / "other").symlink_to(tmp_path / "c")
    with environment(tmp_path / "c") as env:
        write(env, ROWS)
        with (
            environment(tmp_path / "other") as same,
            environment(tmp_path / "c", read_only=True) as third,
        ):
            assert same is env and third is env and env.users == 3
        assert env.users == 1
        with cold(env) as rows:
            assert rows.get(b"p001") == ROWS[b"p001"]
    with environment(tmp_path / "c", read_only=True) as env:
        with environment(tmp_path / "c") as writer:
            write(writer, {b"x": b"1"})
        with cold(env) as rows:
            assert rows.get(b"x") == b"1"
    assert not module._registry


def test_what_a_creation_that_was_cut_short_left_is_replaced(tmp_path: Path) -> None:
    beside = tmp_path / "data.mdb.new"
    for left in (b"", bytes(8192), b"\xff" * 5000):
        beside.write_bytes(left)
        with environment(tmp_path) as env:
            assert env.committed() == 0
        assert sorted(os.listdir(tmp_path)) == ["data.mdb", "lock.mdb"]
        (tmp_path / "data.mdb").unlink()


def test_read_only_creates_nothing(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        open_environment(DISK, tmp_path / "c", read_only=True)
    assert list(tmp_path.iterdir()) == []
    with environment(tmp_path / "c") as env:
        write(env, ROWS)
    (tmp_path / "c" / "lock.mdb").unlink()
    with environment(tmp_path / "c", read_only=True) as env:
        assert env.fixed and os.listdir(tmp_path / "c") == ["data.mdb"]
        with cold(env) as rows:
            assert list(rows.rows(b"p")) == sorted(ROWS.items())
        with pytest.raises(CheckpointError, match="close that store"):
            open_environment(DISK, tmp_path / "c")
        with pytest.raises(CheckpointError, match="read-only"):
            env.write()


def test_files_are_private(tmp_path: Path) -> None:
    with environment(tmp_path / "c"):
        assert (tmp_path / "c").stat().st_mode & 0o777 == 0o700
        for name in ("data.mdb", "lock.mdb"):
            assert (tmp_path / "c" / name).stat().st_mode & 0o777 == 0o600


def test_new_files_have_the_old_format(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LMDB_DEFAULT_LIB_VERSION", "1")
    with environment(tmp_path / "c") as env:
        write(env, {b"a": b"1"})
    with environment(tmp_path / "c"):
        pass


def test_a_disk_in_memory_has_no_checkpoint(tmp_path: Path) -> None:
    disk = SimulatedDisk()
    disk.mkdir(Path("/s"))
    with pytest.raises(CheckpointError, match="in memory"):
        open_environment(disk, Path("/s/checkpoint"))
    disk.real_root = tmp_path
    (tmp_path / "s").mkdir()
    env = open_environment(disk, Path("/s/checkpoint"))
    write(env, ROWS)
    env.close()
    assert (tmp_path / "s" / "checkpoint" / "data.mdb").exists()


def test_closed(tmp_path: Path) -> None:
    with environment(tmp_path / "c") as env:
        write(env, ROWS)
        rows = ColdRows(env)
        walk = rows.rows(b"p")
        next(walk)
        rows.close()
        rows.close()
        for call in (
            lambda: rows.get(b"a"),
            lambda: rows.before(b"a", b"a"),
            lambda: rows.after(b"a", b"a"),
            lambda: list(walk),
        ):
            with pytest.raises(CheckpointError, match="closed"):
                call()
    with pytest.raises(CheckpointError, match="closed"):
        env.begin()


# --- what lies there is not what was written


def test_every_flipped_bit_of_a_value_is_noticed(tmp_path: Path) -> None:
    rng = random.Random(1)
    rows = {b"d" + (5).to_bytes(8, "big") + bytes([i]) * 16: rng.randbytes(3000) for i in range(40)}
    with environment(tmp_path / "c") as env:
        write(env, rows)
    path = tmp_path / "c" / "data.mdb"
    whole = path.read_bytes()
    for key, payload in rng.sample(sorted(rows.items()), 20):
        at = whole.index(payload) + rng.randrange(len(payload) + 4)
        damaged = bytearray(whole)
        damaged[at] ^= 1 << rng.randrange(8)
        path.write_bytes(damaged)
        with environment(tmp_path / "c") as env, cold(env) as found:
            with pytest.raises(CorruptBlock, match="stream 5, entries of the page from"):
                found.get(key)
            with pytest.raises(CorruptBlock):
                found.before(key, b"d")
            with pytest.raises(CorruptBlock):
                found.after(key, b"d")
            with pytest.raises(CorruptBlock):
                list(found.rows(b"d"))


@pytest.mark.parametrize("keys", some_and_all(6, 25))
def test_every_flipped_bit_of_a_key_is_noticed(tmp_path: Path, keys: int) -> None:
    """Where it stands is next to where it would have to be, whatever it became; and branches lead out of order."""
    rng = random.Random(8)
    path = tmp_path / "data.mdb"
    with environment(tmp_path) as env:
        write(env, {b"p%03d" % i: b"%03d" % i * 9 for i in range(0, 998, 2)})
    whole = path.read_bytes()
    for key in rng.sample(range(0, 998, 2), keys):
        wanted = b"p%03d" % key
        for at in [at for at in range(len(whole)) if whole.startswith(wanted, at)]:
            for bit in range(32):
                data = bytearray(whole)
                data[at + bit // 8] ^= 1 << bit % 8
                path.write_bytes(data)
                with environment(tmp_path) as env, cold(env) as rows:
                    for call in (
                        lambda: rows.get(wanted),
                        lambda: rows.before(wanted, b"p"),
                        lambda: rows.after(wanted, b"p"),
                        lambda: rows.before(wanted + b"0", b"p"),
                    ):
                        try:
                            found = call()
                        except CorruptBlock:
                            continue
                        right = b"%03d" % key * 9
                        assert found in (right, (wanted, right)), (at, bit)


def test_values_that_changed_places_are_noticed(tmp_path: Path) -> None:
    with environment(tmp_path / "c") as env:
        write(env, {b"pa": b"A" * 100, b"pb": b"B" * 100})
    path = tmp_path / "c" / "data.mdb"
    data = path.read_bytes()
    a, b = data.index(b"A" * 100), data.index(b"B" * 100)
    swapped = bytearray(data)
    swapped[a : a + 104], swapped[b : b + 104] = data[b : b + 104], data[a : a + 104]
    path.write_bytes(swapped)
    with environment(tmp_path / "c") as env, cold(env) as rows:
        with pytest.raises(CorruptBlock):
            rows.get(b"pa")


def test_what_lmdb_finds_wrong_is_a_corrupt_block(tmp_path: Path) -> None:
    with environment(tmp_path / "c") as env:
        write(env, ROWS)
    path = tmp_path / "c" / "data.mdb"
    data = bytearray(path.read_bytes())
    for at in range(2 * 4096, len(data), 4096):
        data[at + 10 : at + 12] = b"\0\0"  # no page has any flags
    path.write_bytes(data)
    with environment(tmp_path / "c") as env, cold(env) as rows:
        with pytest.raises(CorruptBlock, match="cannot be read"):
            rows.get(b"p001")
        with pytest.raises(CorruptBlock):
            rows.before(b"p001", b"p")
        with pytest.raises(CorruptBlock):
            rows.after(b"p001", b"p")
        with pytest.raises(CorruptBlock):
            list(rows.rows(b"p"))


# --- forks

IN_CHILD = """
import gc, os, sys
from pathlib import Path
from tidelog.disk.real import RealDisk
from tidelog.snapshot.rows.environment import ColdRows, open_environment
from tidelog.snapshot.errors import CheckpointError

def readers(env):
    return env._lmdb.readers()

env = open_environment(RealDisk(), Path(sys.argv[1]))
writing = env.write()
for i in range(2000):
    writing.put(b"k%d" % i, b"v" * i)
writing.commit()
env.extend()
rows = ColdRows(env)
walk = rows.rows(b"k")
next(walk)
writing = env.write()  # in flight while it forks
writing.put(b"new", b"1")
before = readers(env)
pid = os.fork()
if pid == 0:
    for call in (lambda: rows.get(b"k1"), lambda: [*walk], env.begin, rows.renew, env.write):
        try:
            call()
            os._exit(1)
        except CheckpointError as error:
            if "fork" not in str(error):
                os._exit(2)
    writing.abort()
    rows.close()
    env.close()
    own = open_environment(RealDisk(), Path(sys.argv[1]))
    mine = ColdRows(own)
    if mine.get(b"k7") != b"v" * 7 or own is env or mine.get(b"new") is not None:
        os._exit(3)
    mine.close()
    own.close()
    del rows, writing, env, own, mine, walk
    gc.collect()
    sys.exit(7)  # an ordinary exit: everything that is left is taken apart
_, status = os.waitpid(pid, 0)
assert os.waitstatus_to_exitcode(status) == 7, status
assert readers(env) == before, (before, readers(env))
writing.commit()
assert rows.get(b"new") is None and rows.get(b"k1999") == b"v" * 1999
for n in range(20):  # a reader that lost its place would see its pages written over
    writing = env.write()
    for i in range(2000):
        writing.put(b"k%d" % i, b"%d" % n * i)
    writing.commit()
assert [*walk][-1] == (b"k999", b"v" * 999)
rows.renew()
assert rows.get(b"new") == b"1"
rows.close()
env.close()
print("parent is well")
"""


def test_a_forked_child_does_its_parent_no_harm(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", IN_CHILD, str(tmp_path / "c")],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.stdout == "parent is well\n", done.stderr


def test_threads_open_and_close_together(tmp_path: Path) -> None:
    with environment(tmp_path / "c") as env:
        write(env, ROWS)
    failures: list[BaseException] = []

    def work() -> None:
        try:
            for _ in range(50):
                with environment(tmp_path / "c") as env, cold(env) as rows:
                    assert rows.get(b"p001") == ROWS[b"p001"]
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures and not module._registry


def test_too_many_readers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_READERS", 2)
    with environment(tmp_path / "c") as env, cold(env), cold(env):
        with pytest.raises(CheckpointError, match="already"):
            env.begin()
        gc.collect()


def test_an_environment_that_cannot_be_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*args: object, **kwargs: object) -> None:
        raise lmdb.MemoryError("mdb_env_open: Cannot allocate memory")

    monkeypatch.setattr(lmdb, "Environment", refuse)
    with pytest.raises(CheckpointError, match="ulimit -v"):
        open_environment(DISK, tmp_path / "c")


@pytest.mark.parametrize("there", [False, True])
def test_an_open_that_failed_can_be_tried_again(tmp_path: Path, there: bool) -> None:
    """No descriptor was free, say: at each step. LMDB lets no file be opened twice in a process."""

    class Short(RealDisk):
        left = 0

        def _file(self, path: Path, flags: int) -> RealFile:
            self.left -= 1
            if self.left < 0:
                raise OSError(errno.EMFILE, os.strerror(errno.EMFILE), str(path))
            return super()._file(path, flags)

    kept: list[OSError] = []  # and what their frames hold
    disk = Short()
    for steps in range(9):
        if there:
            with environment(tmp_path / f"{steps}"):
                pass
        disk.left = steps
        try:
            open_environment(disk, tmp_path / f"{steps}").close()
        except OSError as error:
            kept.append(error)
        disk.left = 99
        env = open_environment(disk, tmp_path / f"{steps}")
        write(env, {b"a": b"1"})
        env.close()
    assert len(kept) >= 2


def test_a_copy_without_a_socket_leaves_no_file_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def none_free() -> NoReturn:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    with environment(tmp_path / "c") as env:
        monkeypatch.setattr(socket, "socketpair", none_free)
        before = os.listdir("/proc/self/fd")
        with pytest.raises(OSError, match="open files"):
            portable.copy_of(DISK, env, tmp_path, portable.silent)
        assert os.listdir("/proc/self/fd") == before


def test_readers_that_were_killed_do_not_fill_the_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Beside a process that has it open, and makes no checkpoint that would clear them."""
    monkeypatch.setattr(module, "MAX_READERS", 4)  # one of them stays
    code = """
import os, signal, sys
from pathlib import Path
from tidelog.disk.real import RealDisk
from tidelog.snapshot.rows import environment
environment.MAX_READERS = 4
opened = environment.open_environment(RealDisk(), Path(sys.argv[1]), read_only=True)
rows = environment.ColdRows(opened)
print(rows.get(b"a"), flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""
    with environment(tmp_path) as env, cold(env) as rows:
        write(env, {b"a": b"1"})
        rows.renew()
        for _ in range(6):
            argv = [sys.executable, "-c", code, str(tmp_path)]
            done = subprocess.run(argv, capture_output=True, text=True)
            assert done.stdout == "b'1'\n", done.stderr
            assert done.returncode == -signal.SIGKILL


def test_whether_its_path_still_leads_to_it(tmp_path: Path) -> None:
    """A copy of the leader's data takes the place of a checkpoint that is open, or the directory is moved away."""
    with environment(tmp_path / "c") as env:
        write(env, ROWS)
        assert env.is_in_place()
        with environment(tmp_path / "other") as other:
            write(other, {b"a": b"1"})
        (tmp_path / "c").rename(tmp_path / "aside")
        assert not env.is_in_place()
        (tmp_path / "other").rename(tmp_path / "c")
        assert not env.is_in_place()
        with environment(tmp_path / "c") as new, cold(new) as rows:
            assert new.is_in_place() and rows.get(b"a") == b"1"
        (tmp_path / "c").rename(tmp_path / "other")
        (tmp_path / "aside").rename(tmp_path / "c")
        assert env.is_in_place()


def test_no_snapshot_is_made_of_a_checkpoint_that_was_replaced(tmp_path: Path) -> None:
    with environment(tmp_path / "c") as env:
        write(env, ROWS)
        (tmp_path / "c").rename(tmp_path / "aside")
        with (
            environment(tmp_path / "c"),
            pytest.raises(CheckpointError, match="replaced the store"),
        ):
            portable.create(DISK, env, tmp_path / "snapshots")
