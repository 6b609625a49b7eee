"""The preloaded recorder: the trace of a program ends with the files that the program left, and knows its promises."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tidelog.crash.errors import BenchError
from tidelog.crash.preload import library as libraries
from tidelog.crash.preload.library import RECORD, NoCompiler, build
from tidelog.crash.preload.program import Life, record
from tidelog.crash.states import cut_at
from tidelog.crash.trace import Promised, SyncBegin, SyncEnd, Write, pack, tree_of, unpack
from tidelog.disk.real import RealDisk

Recorder = Callable[[str], Life]

EVERY_CALL = """
import mmap, os, shutil, sys, tempfile
os.chdir(sys.argv[1])
old = os.open("old", os.O_RDWR)
os.pwrite(old, b"new", 1)
os.close(old)
fd = os.open("a", os.O_RDWR | os.O_CREAT)
os.write(fd, b"0123456789" * 1000)
os.pwrite(fd, b"second", 5000)
os.writev(fd, [b"third", b"fourth"])
os.pwritev(fd, [b"fifth", b"sixth"], 600)
os.fdatasync(fd)
os.ftruncate(fd, 5)
os.posix_fallocate(fd, 0, 700)
with open("b", "w") as file:
    file.write("a stream " * 2000)
    file.flush()
    os.fsync(file.fileno())
with open("b", "a") as file:
    file.write("appended")
os.mkdir("inner")
os.rename("b", "inner/b")
os.link("inner/b", "inner/c")
os.unlink("inner/b")
os.truncate("inner/c", 100)
shutil.copyfile("inner/c", "copied")
made, name = tempfile.mkstemp(dir=".")
os.sendfile(made, fd, 0, 300)
os.copy_file_range(fd, made, 50, 0, 1000)
os.replace(name, "replaced")
os.remove("gone")
os.rmdir("empty")
shared = mmap.mmap(fd, 700)
shared[10:20] = b"by mapping"
shared.flush()
shared[600:603] = b"end"
directory = os.open(".", os.O_RDONLY)
os.fsync(directory)
synchronous = os.open("sync", os.O_WRONLY | os.O_CREAT | os.O_DSYNC)
os.write(synchronous, b"x" * 1000)
os.sync()
if os.fork() == 0:
    os.write(synchronous, b"by a child")
    os._exit(0)
os.wait()
print("done")
"""

PROMISES = """
import os, sys
fd = os.open(sys.argv[1] + "/log", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
for number in range(3):
    os.write(fd, b"%d\\n" % number)
    os.fsync(fd)
    print(number, flush=True)
"""


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("recorder"), RECORD)


@pytest.fixture
def recorder(tmp_path: Path, library: Path) -> Recorder:
    """Records a program in Python that gets the directory `root` as its argument."""
    for name in ("root", "scratch"):
        (tmp_path / name).mkdir()
    root = tmp_path / "root"

    def run(source: str) -> Life:
        argv = [sys.executable, "-S", "-c", source, str(root)]
        return record(argv, root, tmp_path / "scratch", library, {"seed": "1"})

    return run


def test_the_trace_ends_with_the_files_that_are_there(tmp_path: Path, recorder: Recorder) -> None:
    root = tmp_path / "root"
    (root / "old").write_bytes(b"older content")
    (root / "gone").touch()
    (root / "empty").mkdir()
    life = recorder(EVERY_CALL)
    cut = cut_at(life.trace, len(life.trace.operations))
    image = dict(cut.image(cut.whole))
    assert image == tree_of(RealDisk(), root)
    assert (life.told, life.mapped, life.unseen) == ([b"done"], ["a"], [])
    assert unpack(pack(life.trace), "x") == life.trace
    # The child wrote through a synchronous descriptor behind the sync of everything, and nothing came after it.
    assert cut.count == 1


SYNCHRONOUS = """
import os, sys
os.chdir(sys.argv[1])
flags = {"dsync": os.O_DSYNC, "sync": os.O_SYNC, "none": 0}
at = lambda fd: os.fstat(fd).st_size
calls = {
    "write": lambda fd, data: os.write(fd, data),
    "pwrite": lambda fd, data: os.pwrite(fd, data, at(fd)),
    "writev": lambda fd, data: os.writev(fd, [data]),
    "pwritev": lambda fd, data: os.pwritev(fd, [data], at(fd)),
    "pwritev2": lambda fd, data: os.pwritev(fd, [data], at(fd), os.RWF_HIPRI),
    "sendfile": lambda fd, data: os.sendfile(fd, source, 0, len(data)),
    "copy_file_range": lambda fd, data: os.copy_file_range(source, fd, len(data), 0),
}
calls_alone = {
    "RWF_DSYNC": lambda fd, data: os.pwritev(fd, [data], at(fd), os.RWF_DSYNC),
    "RWF_SYNC": lambda fd, data: os.pwritev(fd, [data], at(fd), os.RWF_SYNC),
    "RWF_APPEND": lambda fd, data: os.pwritev(fd, [data], 0, os.RWF_DSYNC | getattr(os, "RWF_APPEND", 0x10)),
    "fsync": lambda fd, data: (os.write(fd, data), os.fsync(fd)),
    "fdatasync": lambda fd, data: (os.write(fd, data), os.fdatasync(fd)),
    "sync": lambda fd, data: (os.write(fd, data), os.sync()),
}
source = os.open("source", os.O_RDWR | os.O_CREAT)
os.write(source, b"12345")
os.fsync(source)
files = [
    *((f"{flag}-{call}", flags[flag], calls[call]) for flag in ("dsync", "sync") for call in calls),
    *((call, 0, calls_alone[call]) for call in calls_alone),
]
for name, flag, call in files:
    fd = os.open(name, os.O_WRONLY | os.O_CREAT | flag)
    for turn in range(3):
        call(fd, b"12345")
    os.close(fd)
os.fsync(os.open(".", os.O_RDONLY))
print("done")
"""


def test_every_synchronous_write_makes_its_bytes_and_its_size_durable(recorder: Recorder) -> None:
    life = recorder(SYNCHRONOUS)
    cut = cut_at(life.trace, len(life.trace.operations))
    assert life.unseen == []
    assert cut.count == 1, [choice for choice in cut.choices]
    image = cut.image(cut.least)
    assert len(image) == 1 + 2 * 7 + 6
    assert {name for name, data in image.items() if data != b"12345" * 3} == {"source"}


def test_a_promise_is_noted_after_what_it_promises_and_before_all_that_follows(
    recorder: Recorder,
) -> None:
    life = recorder(PROMISES)
    promises = [each for each in life.trace.operations if isinstance(each, Promised)]
    names = "".join(
        f" {each.fsynced}/{each.issued}"
        if isinstance(each, Promised)
        else f" {type(each).__name__}"
        for each in life.trace.operations
        if isinstance(each, (Promised, Write, SyncBegin, SyncEnd))
    )
    # Before a promise is noted, the trace says that it may be kept already.
    assert names == (
        " 0/1 Write SyncBegin SyncEnd 0/2 1/2 Write SyncBegin SyncEnd 1/3 2/3 Write SyncBegin SyncEnd 2/3 3/3 3/3"
    )
    assert all(each.written == each.fsynced for each in promises)


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("import sys; open(sys.argv[1] + '/x', 'w').close()", "promised nothing"),
        ("print('promised')", "changed nothing that could be seen"),
        ("raise SystemExit('no room')", "failed with exit code 1: no room"),
    ],
)
def test_a_program_that_proves_nothing_is_refused(
    recorder: Recorder, source: str, words: str
) -> None:
    with pytest.raises(BenchError, match=words):
        recorder(source)


def test_a_program_that_hangs_is_ended(tmp_path: Path, library: Path) -> None:
    for name in ("root", "scratch"):
        (tmp_path / name).mkdir()
    argv = [sys.executable, "-c", "import threading; threading.Event().wait()"]
    with pytest.raises(BenchError, match="did not end within 0.2 s"):
        record(argv, tmp_path / "root", tmp_path / "scratch", library, {}, seconds=0.2)


LEAVES = """
import os, sys
fd = os.open(sys.argv[1] + "/log", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
os.write(fd, b"first")
if os.fork() == 0:
    while True:
        os.write(fd, b"later")
print("done")
"""


def test_a_program_that_leaves_a_process_is_recorded_to_its_end(recorder: Recorder) -> None:
    life = recorder(LEAVES)
    assert life.told == [b"done"]
    assert unpack(pack(life.trace), "x") == life.trace


def test_a_missing_compiler_is_the_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(libraries, "COMPILERS", ("no-such-compiler",))
    with pytest.raises(NoCompiler, match="none of the compilers no-such-compiler is here"):
        build(tmp_path, RECORD)
