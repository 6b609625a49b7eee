"""Parts of the bench that are ended in the middle, or for which the system lacks something: nothing of them is left."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from tests.crash.exemptions import exempt
from tests.small_disk import small_disk
from tests.tools.benches import begin, below, have_ended, loops_of, mounts_of
from tests.tools.conftest import Run
from tests.tools.test_crash_machine import here
from tests.tools.test_crash_plug import address, run_of, witness, written
from tests.until import until

from tidelog.crash.calls import CALLS
from tidelog.crash.injected import ERRORS
from tidelog.crash.killed import KILL
from tidelog.crash.rot import ROT
from tidelog.crash.servers import SERVERS
from tidelog.crash.suffered import Scene
from tidelog.tools import exits
from tidelog.tools.crash import blocks, fuse
from tidelog.tools.crash.blocks import BLOCKS, RECORDED, XFS_BLOCKS, Recorded
from tidelog.tools.crash.fuse import BlockFile, CannotServe
from tidelog.tools.crash.shutdowns import MACHINE, CannotMount

WITHOUT_LOOPS = 'mount --make-rprivate / && mount -t tmpfs tmpfs /dev && exec "$@"'


def test_without_fuse(
    tmp_path: Path, room: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    device = str(tmp_path / "fuse")
    monkeypatch.setattr(fuse, "DEVICE", device)
    monkeypatch.setattr(blocks, "own_mounts", lambda kind: None)
    reason = f"{device}: No such file or directory"
    with pytest.raises(CannotServe, match=reason):
        BlockFile(room, 4096)
    with pytest.raises(CannotMount, match=reason):
        Recorded(Scene("always", ([], []), "1"), room, RECORDED[BLOCKS])
    assert list(room.iterdir()) == []
    done = run("crash", "--layers", BLOCKS, "--minutes", "0", "--json")
    assert done.code == exits.SYSTEM
    assert json.loads(done.out)["layers"][BLOCKS]["not_run"] == reason


def test_a_fuse_that_cannot_be_mounted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fuse, "DEVICE", os.devnull)
    with pytest.raises(CannotServe, match="^mount of FUSE: "):
        BlockFile(tmp_path, 4096)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_without_a_loop_device(tmp_path: Path) -> None:
    """The command runs for real where /dev is empty."""
    done = subprocess.run(
        ["unshare", "-m", "sh", "-c", WITHOUT_LOOPS, "sh",
         sys.executable, "-m", "tidelog", "crash", "machine", "--minutes", "0", "--json"],
        cwd=tmp_path, capture_output=True, text=True, env={**os.environ, "TMPDIR": str(tmp_path)},
    )  # fmt: skip
    if done.returncode not in (exits.SYSTEM, exits.OK):
        exempt(MACHINE, done.stderr.strip())
    assert done.returncode == exits.SYSTEM, done.stdout
    layers = json.loads(done.stdout)["layers"]
    for layer, counts in layers.items():
        assert counts["tried"] == 0 and counts["not_run"], layer
    assert "loop" in layers[MACHINE]["not_run"]
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGKILL])
def test_power_cuts_that_are_ended_leave_no_mount_and_no_process(
    sent: signal.Signals, tmp_path: Path, room: Path
) -> None:
    # A layer that cannot run is left out by the bench, which never comes to its files then.
    here(
        lambda place: Recorded(Scene("always", ([], []), "1"), place, RECORDED[XFS_BLOCKS]).units,
        tmp_path,
        XFS_BLOCKS,
    )
    bench = begin(room, "crash", "machine", "--minutes", "60", "--seed", "1")
    assert bench.stdout is not None
    assert bench.stdout.readline().startswith("layers machine, xfs, blocks, xfs-blocks")
    # A store is at work on the last of them.
    until(
        lambda: bench.poll() is not None or [*room.glob(f"*/{XFS_BLOCKS}/*")],
        "no file system was mounted",
    )
    if bench.poll() is not None:
        exempt(MACHINE, bench.communicate()[0])
    processes = below(bench.pid)
    assert mounts_of(bench.pid, room) and not mounts_of(os.getpid(), room)
    bench.send_signal(sent)
    out, err = bench.communicate(timeout=120)
    have_ended(processes)
    until(lambda: not loops_of(room), "a loop device is left")
    if sent == signal.SIGINT:
        assert (bench.returncode, err) == (exits.INTERRUPTED, "interrupted\n")
        assert [line.split()[0] for line in out.splitlines()][:2] == ["layer", MACHINE]
    else:
        (left,) = room.iterdir()
        again = begin(room, "crash", "--layers", KILL, "--minutes", "0", "--jobs", "1")
        out, err = again.communicate(timeout=120)
        assert again.returncode == exits.OK, err
        assert f"removed {left}, which a killed run left\n" in out


@pytest.mark.slow
def test_another_store_that_is_ended_leaves_no_file_and_no_process(room: Path) -> None:
    words = ("--subject", "sqlite3-wal-full", "--minutes", "60", "--seed", "1")
    bench = begin(room, "crash", *words)
    assert bench.stdout is not None
    assert bench.stdout.readline().startswith("subjects sqlite3-wal-full")
    until(lambda: [*room.glob("*/subject/*")], "the store was not begun")
    processes = below(bench.pid)
    bench.send_signal(signal.SIGINT)
    out, err = bench.communicate(timeout=120)
    assert (bench.returncode, err) == (exits.INTERRUPTED, "interrupted\n")
    assert "\n0 s, seed 1\n" in out or " s, seed 1\n" in out
    have_ended(processes)


def test_a_writer_that_is_ended_keeps_what_it_told(tmp_path: Path, room: Path, run: Run) -> None:
    path = tmp_path / "store"
    with witness(tmp_path / "notes") as server:
        where = address(server)
        writer = begin(room, "crash", "plug", path, "--witness", where)
        name = run_of(writer)
        written(server, name, writer, 50)
        processes = below(writer.pid)
        writer.send_signal(signal.SIGINT)
        _, err = writer.communicate(timeout=120)
        assert (writer.returncode, err) == (exits.INTERRUPTED, "interrupted\n")
        have_ended(processes)
        done = run("crash", "plug", path, "--after", "--witness", where)
    assert (done.code, done.err) == (exits.OK, "")
    assert f"run {name}: all " in done.out


@pytest.mark.slow
@pytest.mark.parametrize("layer", [ROT, ERRORS, CALLS, KILL, SERVERS])
def test_a_directory_that_fills_up_proves_nothing(layer: str, tmp_path: Path, room: Path) -> None:
    with small_disk(tmp_path / "small", "40m") as where:
        words = ("--layers", layer, "--dir", where, "--jobs", "1", "--seed", "1", "--minutes", "60")
        bench = begin(room, "crash", *words, "--keep", tmp_path / "kept")
        until(lambda: bench.poll() is not None or [*where.glob("*/*/*")], "no store was made")
        assert bench.poll() is None, bench.communicate()
        filler = where / "filler"
        with filler.open("wb", buffering=0) as file:
            # Room that the bench frees meanwhile is taken, too.
            while bench.poll() is None:
                try:
                    file.write(bytes(1 << 16))
                except OSError:
                    continue
        out, err = bench.communicate(timeout=120)
        assert bench.returncode == exits.SYSTEM, out + err
        # A process that died of it may have shown its stack before.
        line = err.splitlines()[-1]
        assert line.startswith(
            f"Error: the bench itself failed: {where} filled up while the bench worked in it, and has "
        )
        assert [*where.iterdir()] == [filler]
    assert not (tmp_path / "kept").exists()


def test_a_directory_of_a_read_only_file_system(tmp_path: Path, run: Run) -> None:
    with small_disk(tmp_path / "small", "40m") as where:
        subprocess.run(["mount", "-o", "remount,ro", str(where)], check=True)
        done = run("crash", "--layers", KILL, "--dir", where, "--jobs", "1")
        assert (done.code, done.out) == (exits.USAGE, "")
        assert f"Directory '{where}' is not writable" in done.err
