"""The tools beside a writer that makes checkpoints and removes segments all the time: they report no damage that is not
there, and all that is.
"""

import os
import random
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.rounds import new_seeds
from tests.tools.conftest import Run

from tidelog.aof import segment
from tidelog.tools import exits

SEGMENT = re.compile(r"\d{20}\.aof")
WRITER = """
import itertools, sys, tidelog
db = tidelog.open(sys.argv[1], fsync="no", segment_bytes=65536, retain_bytes=int(sys.argv[2]),
                  checkpoint_bytes=0, save=(), snapshot_every=None)
db.xgroup_create("jobs", "g", id="0", mkstream=True)
kept = db.xadd("kept", {"n": 0})
for n in itertools.count():
    for i in range(20):
        db.xadd("jobs", {"n": n, "pad": "x" * 400}, maxlen=50, approximate=False)
    db.xreadgroup("g", "w", {"jobs": ">"}, count=20)
    db.checkpoint()
    if n == 30:
        print(kept.decode(), flush=True)
"""
CHECKS = (("repair",), ("verify",), ("aof", "verify"))
TOOLS = (
    *CHECKS,
    ("aof", "dump", "--past-damage"),
    ("aof", "ls", "--scan"),
    ("aof", "stats"),
    ("state",),
    ("why",),
    ("info",),
)


@pytest.fixture(params=[0, 1 << 20])
def written(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[tuple[Path, str]]:
    """(store, ID of an entry of the stream `kept`), with a writer at work that keeps a part of its log."""
    root = tmp_path / "data"
    words = [sys.executable, "-c", WRITER, str(root), str(request.param)]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as writer:
        assert writer.stdout is not None
        try:
            yield root, writer.stdout.readline().strip()
        finally:
            writer.kill()


def words_of(tool: tuple[str, ...], root: Path, kept: str) -> list[object]:
    if tool == ("why",):
        return [*tool, root, "kept", kept]
    return [*tool, root]


def test_no_damage_is_reported_that_is_not_there(run: Run, written: tuple[Path, str]) -> None:
    root, kept = written
    for tool in TOOLS * 2:
        done = run(*words_of(tool, root, kept))
        assert (done.code, done.err) == (exits.OK, ""), (tool, done.out[-2000:])


@pytest.mark.parametrize("written", [1 << 20], indirect=True)
def test_damage_is_reported(run: Run, written: tuple[Path, str]) -> None:
    assert damages(run, *written, random.Random(7), 9)


@pytest.mark.slow
@pytest.mark.parametrize("part", range(10))
@pytest.mark.parametrize("written", [1 << 20], indirect=True)
def test_a_thousand_damages(run: Run, written: tuple[Path, str], part: int) -> None:
    (seed,) = new_seeds(1)
    assert damages(run, *written, random.Random(seed), 100) >= 30


@pytest.mark.parametrize("written", [1 << 20], indirect=True)
def test_the_segment_before_a_damaged_header_is_whole(run: Run, written: tuple[Path, str]) -> None:
    """Its end is known by the name of the file with the header, too."""
    root, kept = written
    for tool in TOOLS:
        path = random.choice(sorted(root.glob("aof/*.aof"))[2:-2])
        with damaged(path, random.Random(7), segment.HEADER_BYTES):
            done = run(*words_of(tool, root, kept))
        reported = [line for line in done.err.splitlines() if "byte" in line]
        assert {name for line in reported for name in SEGMENT.findall(line)} <= {path.name}, tool
        assert reported or "--past-damage" not in tool


@contextmanager
def damaged(path: Path, rng: random.Random, within: int | None = None) -> Iterator[None]:
    """Change a byte of a segment, or of its first `within`, and change it back."""
    with path.open("r+b", buffering=0) as file:
        offset = rng.randrange(within or len(path.read_bytes().rstrip(b"\0")))
        byte = os.pread(file.fileno(), 1, offset)
        os.pwrite(file.fileno(), bytes([byte[0] ^ rng.randrange(1, 256)]), offset)
        try:
            yield
        finally:
            os.pwrite(file.fileno(), byte, offset)


def damages(run: Run, root: Path, kept: str, rng: random.Random, count: int) -> int:
    """Damage one segment after the other, and let one tool after the other look. How often one reported it."""
    found = 0
    for turn in range(count):
        tool = TOOLS[turn % len(TOOLS)]
        path = rng.choice(sorted(root.glob("aof/*.aof"))[2:-2])
        with damaged(path, rng):
            done = run(*words_of(tool, root, kept))
            said = done.out + done.err if tool in CHECKS else done.err
            reported = [line for line in said.splitlines() if "byte" in line]
            named = {name for line in reported for name in SEGMENT.findall(line)}
            assert named <= {path.name}, (tool, path, said[-2000:])
            if tool not in CHECKS:
                assert done.code in (exits.OK, exits.DAMAGED), (tool, path, said[-2000:])
            elif path.exists() or done.code != exits.OK:
                assert named and done.code != exits.OK, (tool, path, said)
            found += bool(named)
    return found
