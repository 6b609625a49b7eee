"""A store in a fresh directory, and a real redis-server 7.0 with redis-py for comparison."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis
from tests.until import until

import tidelog
from tidelog import testing


@pytest.fixture
def clock() -> testing.Clock:
    """Moved by hand; for tests that open a store with it."""
    return testing.Clock()


@pytest.fixture
def db(tmp_path: Path) -> Iterator[tidelog.Store]:
    """Relaxed, so that a test does not wait for the disk with every call."""
    store = tidelog.open(tmp_path / "store", fsync="no")
    yield store
    try:
        store.close()
    except tidelog.StorePoisoned:
        pass


@pytest.fixture(scope="session")
def server() -> Iterator[Path]:
    """The unix socket of a redis-server that keeps nothing."""
    place = Path(tempfile.mkdtemp(prefix="shapes-"))
    socket = place / "redis.sock"
    program = shutil.which("redis-server")
    assert program is not None, "redis-server is not installed: apt-get install redis-server"
    process = subprocess.Popen(
        [program, "--port", "0", "--unixsocket", str(socket), "--save", "", "--dir", str(place)],
        stdout=subprocess.DEVNULL,
    )
    try:
        until(lambda: process.poll() is not None or socket.exists(), "it did not start")
        assert process.poll() is None
        yield socket
    finally:
        process.terminate()
        process.wait()
        shutil.rmtree(place)


@pytest.fixture
def client(server: Path) -> Iterator[redis.Redis]:
    """redis-py on an empty server, protocol=2."""
    with redis.Redis(unix_socket_path=str(server), protocol=2) as found:
        found.flushall()
        yield found
