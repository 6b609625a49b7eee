"""Processes that a test leaves running are ended, however it left them, and those of several tests are not."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.gate.left import process
from tests.gate.planted import WHOLE, Suite
from tests.until import until

BEGIN = """
import subprocess, sys

def begin(name, *words, **options):
    running = subprocess.Popen([*words, "sleep", "600"], **options)
    Path(name).write_text(str(running.pid))
    return running

@pytest.fixture(scope="module")
def server():
    with begin("server", env={"PATH": os.defpath}) as running:
        yield running
        running.kill()

def test_fails(server):
    begin("child")
    begin("session", start_new_session=True)
    begin("bare", env={}, executable="/bin/sleep")
    subprocess.run(["sh", "-c", "sleep 600 & echo $! > orphan"])
    forked = os.fork()
    if not forked:
        time.sleep(600)
        os._exit(0)
    Path("forked").write_text(str(forked))
    assert False

def test_next(server):
    assert server.poll() is None
    for name in ("child", "session", "bare", "orphan", "forked"):
        stat = Path("/proc", Path(name).read_text().strip(), "stat")
        assert not stat.exists() or stat.read_text().split()[2] in "ZX", name
    begin("passed")
"""
DIES = """
import subprocess

def test_dies():
    Path("died").write_text(str(subprocess.Popen(["sleep", "600"]).pid))
    os._exit(3)
"""


def runs(pid: int) -> bool:
    try:
        return bool(process(pid).command)  # one that nobody has waited for has none
    except OSError:
        return False


@pytest.fixture
def suite(tmp_path: Path) -> Suite:
    return Suite(tmp_path)


@pytest.mark.parametrize(
    "words", [(), ("-n", "1", "--max-worker-restart", "0")], ids=["one", "xdist"]
)
def test_nothing_is_left(words: tuple[str, ...], suite: Suite) -> None:
    suite.write("tests/tools/test_some.py", BEGIN)
    if words:
        suite.write("tests/tools/test_then.py", DIES)
    done = suite.run("pytest", "-q", *words, plugins=WHOLE)
    names = ["child", "session", "bare", "orphan", "forked", "passed", *(["died"] if words else [])]
    pids = {name: int((suite.root / name).read_text()) for name in names}
    shown, _, last = done.stdout.partition("left running, and ended: ")
    _, _, told = shown.partition("Left running, and ended at teardown")
    for name in names[:5]:
        assert f"\n{pids[name]} " in told, done.stdout
    assert f"{pids['passed']} sleep 600" in last and "test_some.py::test_next" in last
    until(lambda: not any(map(runs, pids.values())))
    assert ("1 failed, 1 passed" if not words else "2 failed, 1 passed") in done.stdout
