"""`tidelog crash plug` and `witness`: a killed writer, a real file system that loses its power, and bad arguments."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.tools.conftest import Run
from tests.tools.test_crash_machine import here
from tests.until import until

import tidelog
from tidelog.crash.mutants import BY_NAME
from tidelog.tools import exits
from tidelog.tools.crash import site
from tidelog.tools.crash.plugged import stream_of
from tidelog.tools.crash.shutdowns import file_system
from tidelog.tools.crash.site import sitecustomize
from tidelog.tools.crash.witness import Notes, Witness

RUN = "0123456789abcdef"


@contextmanager
def witness(notes: Path) -> Iterator[Witness]:
    kept = Notes(notes)
    with Witness("127.0.0.1", 0, kept, lambda text: None) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()
    kept.close()


@pytest.fixture
def witnessed(tmp_path: Path) -> Iterator[Witness]:
    with witness(tmp_path / "notes") as server:
        yield server


def address(server: Witness) -> str:
    return f"127.0.0.1:{server.server_address[1]}"


def plug(path: Path, server: Witness, **env: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "tidelog", "crash", "plug", path, "--witness", address(server)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONUNBUFFERED": "1", **env},
    )


def run_of(process: subprocess.Popen[str]) -> str:
    """The run that a writer prints in its second line."""
    assert process.stdout is not None
    assert process.stdout.readline().startswith("directory ")
    found = re.fullmatch(
        r"run ([0-9a-f]{16}): pull the plug at any time.*\n", process.stdout.readline()
    )
    assert found is not None
    return found[1]


def written(server: Witness, run: str, process: subprocess.Popen[str], count: int) -> None:
    """Until this number of writes was noted."""
    until(
        lambda: process.poll() is not None
        or sum((server.notes.of(run) or {}).values()) >= count,
        "the witness is told nothing",
    )  # fmt: skip
    assert process.poll() is None, process.communicate()


def test_a_killed_writer_has_lost_nothing_and_a_store_that_lacks_something_is_told(
    tmp_path: Path, witnessed: Witness, run: Run
) -> None:
    path = tmp_path / "store"
    process = plug(path, witnessed)
    name = run_of(process)
    written(witnessed, name, process, 200)
    process.kill()
    process.communicate()
    after = ("crash", "plug", path, "--after", "--witness", address(witnessed))
    done = run(*after)
    assert (done.code, done.err) == (exits.OK, "")
    said = re.fullmatch(rf"run {name}: all ([0-9,]+) acknowledged writes .* are there\n", done.out)
    assert said is not None and int(said[1].replace(",", "")) >= 200
    noted = witnessed.notes.of(name)
    assert noted is not None
    with tidelog.open(path) as db:
        ((last, _),) = db.xrevrange(stream_of(0), count=1)
        db.xadd(stream_of(0), {b"number": b"1", b"data": b"other"})
        while (entries := db.xrevrange(stream_of(1))) and len(entries) > 1:
            db.xdel(stream_of(1), *[each for each, _ in entries[:-1]])
    done = run(*after, "--run", name)
    assert done.code == exits.FAILED
    lines = done.out.splitlines()
    assert re.fullmatch(r"wrong: writer 0: write 1 comes after write [0-9,]+", lines[0])
    assert (
        f"lost: writer 1: the witness noted write {noted[1]:,}, and the last one here is 1" in lines
    )


def test_a_store_that_was_lost_whole_is_told(tmp_path: Path, witnessed: Witness, run: Run) -> None:
    witnessed.notes.note(RUN, 0, 7)
    after = ("crash", "plug", tmp_path / "store", "--after", "--witness", address(witnessed))
    done = run(*after)
    assert done.code == exits.NOT_A_STORE
    assert "say --run RUN" in done.err
    done = run(*after, "--run", RUN)
    assert (done.code, done.out) == (exits.FAILED, f"lost: {tmp_path / 'store'} does not exist\n")
    (tmp_path / "store").mkdir()
    done = run(*after, "--run", RUN)
    assert done.code == exits.FAILED
    assert "the witness noted write 7, and the last one here is 0" in done.out
    done = run(*after)
    assert done.code == exits.NOT_A_STORE
    assert "knows no run of tidelog crash plug" in done.err


def test_a_writer_ends_by_itself_and_its_directory_is_not_used_again(
    tmp_path: Path, witnessed: Witness, run: Run
) -> None:
    words = ("crash", "plug", tmp_path / "store", "--witness", address(witnessed))
    done = run(*words, "--minutes", "0.0001", "--writers", "1")
    assert (done.code, done.err) == (exits.OK, "")
    assert done.out.endswith("acknowledged and told, and the power is still there\n")
    done = run(*words)
    assert (done.code, done.out) == (exits.USAGE, "")
    assert "is not empty; name a new directory" in done.err


def test_a_writer_ends_when_its_witness_is_gone(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        where = f"127.0.0.1:{server.getsockname()[1]}"
        process = subprocess.Popen(
            [sys.executable, "-m", "tidelog", "crash", "plug", tmp_path / "store", "--witness", where],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )  # fmt: skip
        connection, _ = server.accept()
        with connection, connection.makefile("rwb") as lines:
            assert lines.readline().startswith(b"plug ")
            lines.write(b"noted\n")
            lines.flush()
            assert lines.readline().split()[1] == b"1"
        _, err = process.communicate(timeout=120)
    assert process.returncode == exits.SYSTEM
    assert err.startswith(f"tidelog: the witness at {where} is gone: ")
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    ("args", "code", "words"),
    [
        (("--witness", "nowhere"), exits.USAGE, "'nowhere' is not HOST:PORT"),
        (("--witness", "host:0"), exits.USAGE, "'host:0' is not HOST:PORT"),
        (("--witness", "host:99999"), exits.USAGE, "is not HOST:PORT"),
        ((), exits.USAGE, "--witness"),
        (("--witness", "{}", "--run", "x"), exits.USAGE, "'x' is not the name of a run"),
        (("--witness", "{}", "--run", RUN), exits.USAGE, "--run is for --after"),
        (("--witness", "{}", "--writers", "0"), exits.USAGE, "0"),
        (("--witness", "{}", "--for", "nan"), exits.USAGE, "nan"),
        (("--witness", "{}", "--minutes", "nan"), exits.USAGE, "nan"),
        (("--witness", "{}", "--after", "--run", RUN), exits.NOT_A_STORE, f"knows no run {RUN}"),
    ],
)
def test_bad_arguments(
    tmp_path: Path, witnessed: Witness, run: Run, args: tuple[str, ...], code: int, words: str
) -> None:
    given = [arg.replace("{}", address(witnessed)) for arg in args]
    done = run("crash", "plug", tmp_path / "store", *given)
    assert (done.code, done.out) == (code, "")
    assert words in done.err
    assert not (tmp_path / "store").exists()


@pytest.mark.parametrize("answer", [b"", b"+PONG\r\n", b"\xff\xfe\n"])
def test_a_server_that_is_no_witness_is_told(tmp_path: Path, run: Run, answer: bytes) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            for _ in range(2):
                connection, _ = server.accept()
                with connection:
                    connection.recv(100)
                    connection.sendall(answer)

        thread = threading.Thread(target=serve)
        thread.start()
        where = f"127.0.0.1:{server.getsockname()[1]}"
        words = ("crash", "plug", tmp_path / "store", "--witness", where)
        for more in ((), ("--after", "--run", RUN)):
            done = run(*words, *more)
            assert done.code == exits.SYSTEM
            assert done.err == f"tidelog: {where} is no witness of tidelog crash\n"
        thread.join()


def test_no_witness_at_all(tmp_path: Path, run: Run) -> None:
    with socket.socket() as taken:  # bound, and nobody listens
        taken.bind(("127.0.0.1", 0))
        where = f"127.0.0.1:{taken.getsockname()[1]}"
        done = run("crash", "plug", tmp_path / "store", "--witness", where)
    assert done.code == exits.SYSTEM
    assert done.err == f"tidelog: no witness answers at {where}: Connection refused\n"


def test_a_witness_goes_on_with_its_notes_and_ends_with_ctrl_c(tmp_path: Path) -> None:
    notes = tmp_path / "notes"
    for last in (3, 5):
        process = subprocess.Popen(
            [sys.executable, "-m", "tidelog", "crash", "witness",
             "--bind", "127.0.0.1", "--port", "0", "--notes", notes],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            env={**os.environ, "PYTHONUNBUFFERED": "1"},
        )  # fmt: skip
        assert process.stdout is not None
        found = re.fullmatch(
            r"listening on 127.0.0.1:(\d+), notes in .*\n", process.stdout.readline()
        )
        assert found is not None
        where = ("127.0.0.1", int(found[1]))
        with socket.create_connection(where) as connection:
            connection.sendall(b"plug %b\n0 %d\n12 1\n0 2\n" % (RUN.encode(), last))
            connection.shutdown(socket.SHUT_WR)
            with connection.makefile("rb") as lines:
                assert lines.read() == b"noted\n"
        with socket.create_connection(where) as connection, connection.makefile("rb") as lines:
            connection.sendall(b"after %b\n" % RUN.encode())
            assert json.loads(lines.readline()) == {"0": last, "12": 1}
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=120)
        assert (process.returncode, err) == (exits.OK, "")
        assert f"run {RUN} ended: {last + 1} acknowledged writes noted" in out
    assert len(notes.read_text().splitlines()) == 2


@pytest.mark.parametrize(
    "sent",
    [
        b"GET / HTTP/1.1\n",
        b"plug x\n",
        b"\xff\n",
        b"\n",
        b"x" * 200,
        b"after %b\n" % RUN.encode(),
    ],
)
def test_a_witness_answers_bad_lines_and_goes_on(witnessed: Witness, sent: bytes) -> None:
    with socket.create_connection(("127.0.0.1", witnessed.server_address[1])) as connection:
        connection.sendall(sent)
        connection.shutdown(socket.SHUT_WR)
        with connection.makefile("rb") as lines:
            assert lines.readline() in (b"not understood\n", b"unknown\n")
    assert witnessed.notes.of(RUN) is None


@pytest.mark.parametrize(
    "line",
    [b"0\n", b"0 x\n", b"1000 1\n", b"0 1000000000000000001\n", b"-1 5\n", b"0 5", b"0 5 6\n"],
)
def test_a_note_that_is_cut_or_makes_no_sense_is_not_taken(witnessed: Witness, line: bytes) -> None:
    with socket.create_connection(("127.0.0.1", witnessed.server_address[1])) as connection:
        connection.sendall(b"plug %b\n3 2\n%b" % (RUN.encode(), line))
        connection.shutdown(socket.SHUT_WR)
        with connection.makefile("rb") as lines:
            assert lines.read() == b"noted\n"
    assert witnessed.notes.of(RUN) == {0: 0, 3: 2}


@pytest.mark.parametrize("text", ["hello\n", f"{RUN} 0\n", f"{RUN}   0                   5 \n"])
def test_a_file_of_somebody_else_is_not_written(tmp_path: Path, run: Run, text: str) -> None:
    (tmp_path / "notes").write_text(text)
    done = run("crash", "witness", "--notes", tmp_path / "notes", "--port", "0")
    assert done.code == exits.USAGE
    assert "line 1: not a note of a witness; name another file" in done.err
    assert (tmp_path / "notes").read_text() == text


def test_an_address_that_is_taken(tmp_path: Path, run: Run, witnessed: Witness) -> None:
    port = witnessed.server_address[1]
    done = run(
        *("crash", "witness", "--bind", "127.0.0.1"),
        *("--port", port, "--notes", tmp_path / "others"),
    )
    assert done.code == exits.SYSTEM
    assert done.err == f"tidelog: cannot listen on 127.0.0.1:{port}: Address already in use\n"


def cut_under_a_writer(scratch: Path, env: dict[str, str]) -> tuple[int, str]:
    """Exit code and output of --after on an ext4 that lost its power under a writer."""
    notes = scratch / "notes"
    room = scratch / "room"
    room.mkdir()
    with witness(notes) as server, file_system(room) as made:
        path = made.place / "store"
        process = plug(path, server, **env)
        name = run_of(process)
        written(server, name, process, 200)
        made.cut()
        # Each write fails from here on, so the writer ends.
        _, err = process.communicate(timeout=120)
        assert process.returncode == exits.SYSTEM, err
        made.unmount()
        made.mount()
        done = subprocess.run(
            [sys.executable, "-m", "tidelog", "crash", "plug", path, "--after",
             "--run", name, "--witness", address(server)],
            capture_output=True, text=True, timeout=120,
        )  # fmt: skip
    notes.unlink()
    room.rmdir()
    return done.returncode, done.stdout + done.stderr


@pytest.mark.slow
def test_a_file_system_that_loses_its_power_keeps_what_was_noted(tmp_path: Path) -> None:
    found = here(lambda scratch: cut_under_a_writer(scratch, {}), tmp_path)
    assert isinstance(found, tuple)
    code, said = found
    assert code == exits.OK, said
    assert re.fullmatch(r"run [0-9a-f]{16}: all [0-9,]+ acknowledged writes .* are there\n", said)


@pytest.mark.slow
def test_a_store_without_fdatasync_is_found_when_the_power_goes(tmp_path: Path) -> None:
    fault = BY_NAME["log/no-fdatasync"]
    change = {"file": fault.file, "anchor": fault.anchor, "replacement": fault.replacement}
    env = {
        "PYTHONPATH": os.pathsep.join([str(Path(site.__file__).parent), *sys.path]),
        sitecustomize.CHANGE: json.dumps(change),
    }
    found = here(lambda scratch: cut_under_a_writer(scratch, env), tmp_path)
    assert isinstance(found, tuple)
    code, said = found
    assert code == exits.FAILED, said
    assert said.startswith(("lost: ", "refused: "))
