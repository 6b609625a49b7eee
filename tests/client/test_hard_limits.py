"""An owner or a client that the system denies descriptors, memory, rights, or the sight of other processes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from tests.client.owners import ended_owner, is_running, kill, owner_of
from tests.rounds import rest_slow

import tidelog
from tidelog.aof.layout import SHARED

DESCRIPTORS = 48
MEMORY = 400 << 20


@contextmanager
def limited_owner(root: Path, limit: str) -> Iterator[subprocess.Popen[bytes]]:
    """An owner under a limit of `resource`."""
    code = (
        f"import resource; resource.setrlimit(resource.{limit}); "
        f"from tidelog.client import owner; owner.main([{str(root)!r}, 'appendfsync=no'])"
    )
    with (
        ended_owner(root),
        subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as process,
    ):
        assert process.stdout is not None and process.stdout.readline()
        yield process
        process.terminate()
        assert process.wait(60) is not None


def test_the_owner_has_no_descriptors_left(tmp_path: Path) -> None:
    root = tmp_path / "store"
    with limited_owner(root, f"RLIMIT_NOFILE, ({DESCRIPTORS}, {DESCRIPTORS})") as process:
        with ExitStack() as stack:
            first = stack.enter_context(tidelog.connect(root))
            first.set("k", "v")
            refused = None
            for _ in range(DESCRIPTORS):
                begun = time.monotonic()
                try:
                    stack.enter_context(tidelog.connect(root, timeout=60))
                except tidelog.TidelogError as error:
                    refused = error
                    break
            assert refused is not None and time.monotonic() - begun < 50
            assert "max number of clients" in str(refused)
            assert first.get("k") == b"v" and first.queue("q").put(1)
        with tidelog.connect(root) as again:
            assert len(again.queue("q")) == 1
        assert process.poll() is None


def test_the_owner_has_no_memory_left(tmp_path: Path) -> None:
    root = tmp_path / "store"
    put: list[str] = []
    with limited_owner(root, f"RLIMIT_AS, ({MEMORY}, {MEMORY})") as process:
        with tidelog.connect(root, timeout=5) as db:
            queue = db.queue("q", codec="bytes")
            with pytest.raises(tidelog.TidelogError):
                for number in range(100):
                    put.append(queue.put(b"%d" % (number % 10) * (8 << 20)))
        process.kill()
        process.wait(60)
    assert put
    with tidelog.open(root, read_only=True) as db:
        stored = [id.decode() for id, _ in db.xrange("q")]
        assert stored[: len(put)] == put and len(stored) <= len(put) + 1


def test_a_client_has_no_memory_left(tmp_path: Path) -> None:
    root = tmp_path / "store"
    code = (
        "import resource, tidelog\n"
        f"with tidelog.queue({str(root)!r}, 'q', shared=True, codec='bytes') as queue:\n"
        "    queue.put(b'v')\n"
        f"    resource.setrlimit(resource.RLIMIT_AS, ({MEMORY}, {MEMORY}))\n"
        "    try:\n"
        f"        queue.put(bytes({MEMORY}))\n"
        "    except MemoryError:\n"
        "        pass\n"
        "    print(len(queue), queue.put(b'w') != '')\n"
    )
    with ended_owner(root):
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
        assert (done.stdout, done.stderr) == ("1 True\n", "")
        with tidelog.connect(root) as db:
            assert len(db.queue("q")) == 2


CLIENT = (
    "import tidelog, sys\n"
    "with tidelog.queue(sys.argv[1], 'q', shared=True) as queue: queue.put(1); print(len(queue))\n"
)


def needs_root() -> None:
    """These tests make a namespace, or become another user."""
    assert os.geteuid() == 0, "run the tests as root, as in a container"


@pytest.mark.parametrize("inside_first", rest_slow([True, False], 1))
def test_containers_that_do_not_see_each_others_processes(
    tmp_path: Path, inside_first: bool
) -> None:
    needs_root()
    root = tmp_path / "store"
    outside = [sys.executable, "-c", CLIENT, str(root)]
    # The process with number 1 of a namespace is its parent's; the namespace ends with it, and its owner too.
    inside = ["unshare", "--pid", "--fork", "--mount-proc", *outside]
    with ended_owner(root):
        turns = [inside, outside] if inside_first else [outside, inside]
        for number, words in enumerate(turns, 1):
            done = subprocess.run(words, capture_output=True, text=True, timeout=60)
            assert (done.stdout, done.stderr) == (f"{number}\n", "")
        with tidelog.connect(root) as db:
            assert len(db.queue("q")) == 2


def as_user(words: list[str], home: Path) -> subprocess.CompletedProcess[str]:
    """Run a program for which the modes of files hold. They do not for root, and others may not see this Python."""
    needs_root()
    caps = "-dac_override,-dac_read_search"
    return subprocess.run(
        ["setpriv", f"--bounding-set={caps}", f"--inh-caps={caps}", *words],
        capture_output=True,
        text=True,
        timeout=60,
        cwd=home,
        env={**os.environ, "HOME": str(home)},
    )


def test_a_directory_that_may_not_be_written(tmp_path: Path) -> None:
    place = tmp_path / "place"
    place.mkdir(mode=0o555)
    root = place / "store"
    code = (
        "import tidelog, sys\n"
        "try: tidelog.connect(sys.argv[1])\n"
        "except tidelog.CannotOpen as error: print(error)\n"
    )
    done = as_user([sys.executable, "-c", code, str(root)], place)
    assert done.stderr == "" and done.stdout.count("\n") == 1, done
    assert str(root) in done.stdout and "ermission denied" in done.stdout
    assert not list(place.iterdir())


def test_a_home_that_may_not_be_written(tmp_path: Path) -> None:
    """The store is elsewhere: nothing needs the home, or the current directory."""
    home, root = tmp_path / "home", tmp_path / "store"
    home.mkdir(mode=0o555)
    with ended_owner(root):
        done = as_user([sys.executable, "-c", CLIENT, str(root)], home)
        assert (done.stdout, done.stderr) == ("1\n", "")
        assert not list(home.iterdir())


def test_an_owner_behind_a_long_path_is_killed_and_replaced(tmp_path: Path) -> None:
    root = tmp_path.joinpath(*["long" * 12] * 4) / "store"
    root.parent.mkdir(parents=True)
    with ended_owner(root), tidelog.queue(root, "q", shared=True) as queue:
        queue.put(1)
        first = kill(root)
        queue.put(2)
        second = owner_of(root)
        assert second != first and is_running(second) and len(queue) == 2
        kill(root, signal.SIGTERM)
        assert not os.path.lexists(root / SHARED)
        job = queue.get(block=0)
        assert job is not None and job.value == 1 and job.ack()


@pytest.mark.slow
def test_a_store_that_another_machine_has_open(tmp_path: Path) -> None:
    """As over NFS: the lock is taken, no socket answers, and no such process runs here."""
    root = tmp_path / "store"
    with tidelog.open(root):
        lock = root / "LOCK"
        mine = lock.read_text()
        gone = subprocess.Popen(["true"])
        gone.wait()
        lock.write_text(f"{gone.pid}\n")
        try:
            with pytest.raises(tidelog.StoreLocked, match="on another machine"):
                tidelog.open(root)
            with pytest.raises(tidelog.StoreLocked, match="on another machine") as caught:
                tidelog.connect(root)
            assert "let it call" not in str(caught.value)
        finally:
            lock.write_text(mine)
        with pytest.raises(tidelog.StoreLocked, match="let it call tidelog.serve") as caught:
            tidelog.connect(root)
        assert "another machine" not in str(caught.value)
