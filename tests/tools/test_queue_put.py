"""tidelog queue put: values, lines, headers, delays; what is refused before anything is put."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from tests.tools.conftest import Run

import tidelog
from tidelog.tools import exits


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A store with one queue, which is empty."""
    with tidelog.queue(tmp_path / "data", "mails") as queue:
        queue.subscribe()
    return tmp_path / "data"


def jobs(root: Path, codec: str = "json", name: str = "mails") -> list[object]:
    with tidelog.open(root, read_only=True) as db:
        return [job.value for job in db.queue(name, codec=codec).peek(100)]


@pytest.fixture
def lines(monkeypatch: pytest.MonkeyPatch) -> Callable[[bytes], None]:
    """Sets what standard input holds."""

    def give(data: bytes) -> None:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data)))

    return give


def test_values(run: Run, root: Path) -> None:
    done = run("queue", "put", root, "mails", '{"to": "ann"}', "7", '"x"')
    assert (done.code, done.err) == (0, "")
    assert jobs(root) == [{"to": "ann"}, 7, "x"]
    with tidelog.open(root, read_only=True) as db:
        assert [job.id for job in db.queue("mails").peek()] == done.out.split()


def test_priorities(run: Run, root: Path) -> None:
    assert run("queue", "put", root, "mails", "1").code == 0
    assert run("queue", "put", root, "mails", "2", "--priority", "9").code == 0
    assert jobs(root) == [2, 1]
    wrong = run("queue", "put", root, "mails", "3", "--priority", "10")
    assert wrong.code == exits.USAGE
    assert "10 is not in the range 0<=x<=9" in wrong.err


def test_a_retry_policy(run: Run, root: Path) -> None:
    assert run("queue", "put", root, "mails", "1", "--retry", "max=8 never=ValueError").code == 0
    with tidelog.queue(root, "mails") as mails:
        job = mails.get("anna", 0)
    assert job is not None
    assert job.retry == tidelog.RetryPolicy(max=8, never=(ValueError,))
    wrong = run("queue", "put", root, "mails", "3", "--retry", "max=8 never=ValueEror")
    assert wrong.code == exits.USAGE
    assert "never must name exception classes, not 'ValueEror'" in wrong.err


@pytest.mark.parametrize(
    ("codec", "text", "value"),
    [
        ("str", "ünï \n", "ünï \n"),
        ("bytes", "\udcff{", b"\xff{"),
        ("msgpack", '{"a": [1, null]}', {"a": [1, None]}),
        ("json", " 1 ", 1),
    ],
)
def test_codecs(run: Run, root: Path, codec: str, text: str, value: object) -> None:
    assert run("queue", "put", root, "mails", "--codec", codec, text).code == 0
    assert jobs(root, codec) == [value]


def test_json(run: Run, root: Path) -> None:
    told = json.loads(run("queue", "put", root, "mails", "1", "2", "--json").out)
    assert told["put"] == 2 and len(told["ids"]) == 2


def test_headers_and_a_dedup_id(run: Run, root: Path) -> None:
    words = (
        "queue",
        "put",
        root,
        "mails",
        "1",
        "--header",
        "a=b=c",
        "--header",
        "d=",
        "--dedup-id",
        "x",
    )
    first, second = run(*words), run(*words)
    assert first.out == second.out
    with tidelog.open(root, read_only=True) as db:
        (job,) = db.queue("mails").peek()
        assert job.headers == {"a": "b=c", "d": ""}


def test_the_mode_of_a_dedup_id(run: Run, root: Path) -> None:
    put = ("queue", "put", root, "mails", "--dedup-id", "x", "--dedup-mode")
    first, second = run(*put, "until-done", "1"), run(*put, "until-done", "2")
    assert first.code == 0 and first.out == second.out and jobs(root) == [1]
    assert run(*put, "replace", "3").code == 0 and jobs(root) == [3]


def test_forget(run: Run, root: Path) -> None:
    put = ("queue", "put", root, "mails", "1", "--dedup-id", "x")
    forget = ("queue", "forget", root, "mails", "x")
    first = run(*put)
    done = run(*forget)
    assert (done.code, done.out, done.err) == (0, "1 ID is free\n", "")
    assert run(*forget).out == "the ID was free\n"
    assert json.loads(run(*forget, "--json").out) == {"forgotten": 0}
    assert run(*put).out != first.out and jobs(root) == [1, 1]
    assert run("queue", "forget", root, "none", "x").code == exits.NOT_A_STORE


def test_later(run: Run, root: Path) -> None:
    assert run("queue", "put", root, "mails", "1", "--delay", "15m").code == 0
    tomorrow = (datetime.now(UTC) + timedelta(days=1)).isoformat()
    assert run("queue", "put", root, "mails", "2", "--at", tomorrow).code == 0
    assert run("queue", "put", root, "mails", "3", "--ttl", "2h").code == 0
    assert jobs(root) == [3]
    with tidelog.open(root, read_only=True) as db:
        assert db.queue("mails").stats().scheduled == 2
    far = run("queue", "put", root, "mails", "4", "--at", "2200-01-01T00:00")
    assert far.code == exits.REFUSED and far.err.count("\n") == 1


def test_lines(run: Run, root: Path, lines: Callable[[bytes], None]) -> None:
    lines(b'1\n\n{"a": 2}\r\n"last"')
    assert run("queue", "put", root, "mails", "-").out == "3 jobs put\n"
    assert jobs(root) == [1, {"a": 2}, "last"]
    lines(b"4\n5\n")
    told = run("queue", "put", root, "mails", "-", "--header", "a=b", "--json").out
    assert json.loads(told) == {"put": 2} and jobs(root)[-2:] == [4, 5]


def test_a_line_that_is_no_value(run: Run, root: Path, lines: Callable[[bytes], None]) -> None:
    lines(b"1\n2\nx\n4\n")
    done = run("queue", "put", root, "mails", "-")
    assert (
        done.code == exits.USAGE and "the lines before were put; line 3 'x' is not JSON" in done.err
    )
    assert jobs(root) == [1, 2]


def test_a_value_that_is_none_puts_nothing(run: Run, root: Path) -> None:
    done = run("queue", "put", root, "mails", "1", "hello")
    assert done.code == exits.USAGE and "--codec str" in done.err
    assert run("queue", "put", root, "mails", "[" * 5000).code == exits.USAGE
    assert run("queue", "put", root, "mails", "NaN").code == exits.USAGE
    assert jobs(root) == []


def test_a_new_queue(run: Run, root: Path) -> None:
    done = run("queue", "put", root, "mail", "1")
    assert done.code == exits.NOT_A_STORE and "it holds mails" in done.err
    assert run("queue", "put", root, "mail", "1", "--create").code == 0
    assert jobs(root, name="mail") == [1]
    assert run("queue", "put", root, "mail", "2", "--create").code == 0
    assert jobs(root, name="mail") == [1, 2]


def test_a_new_store(run: Run, root: Path) -> None:
    missing, empty = root.parent / "nothing", root.parent / "empty"
    empty.mkdir()
    for path in missing, empty:
        done = run("queue", "put", path, "mail", "1")
        assert done.code == exits.NOT_A_STORE
        assert done.err.endswith("give a missing or empty directory and --create\n")
        assert not path.exists() or not list(path.iterdir())
        assert run("queue", "put", path, "mail", "1", "--create").code == 0
        assert jobs(path, name="mail") == [1]
    done = run("queue", "put", missing, "other", "1")
    assert done.err.endswith("it holds mail; to begin it, add --create\n")
    other = root.parent / "other"
    other.mkdir()
    (other / "notes.txt").touch()
    assert run("queue", "put", other, "mail", "1", "--create").code == exits.NOT_A_STORE


def test_through_the_process_that_serves_the_store(run: Run, root: Path) -> None:
    with tidelog.open(root) as db, tidelog.serve(db, port=0) as serving:
        assert run("queue", "put", root, "mails", "1").code == 0
        assert run("queue", "put", f"redis://127.0.0.1:{serving.port}", "mails", "2").code == 0
        assert run("queue", "put", root, "mails", "3", "--delay", "15m", "--ttl", "2h").code == 0
        assert [job.value for job in db.queue("mails").peek()] == [1, 2]
        assert db.queue("mails").stats().scheduled == 1


def test_a_store_that_is_open_elsewhere(run: Run, root: Path) -> None:
    with tidelog.open(root):
        done = run("queue", "put", root, "mails", "1")
        assert done.code == exits.LOCKED and "queue.put()" in done.err


# fmt: off
BAD = (
    "", "1 -", "1 2 --dedup-id x", "- --dedup-id x", "1 --delay x", "1 --delay -5", "1 --delay nan", "1 --ttl inf",
    "1 --at yesterday", "1 --at 15m", "1 --delay 1 --at 2030-01-01", "1 --header x", "1 --header =x", "1 --codec xml",
    "1 --retry max=0",
    "1 --dedup-mode replace", "1 --dedup-id x --dedup-mode y",
)
# fmt: on


def test_bad_requests(run: Run, root: Path) -> None:
    for words in BAD:
        done = run("queue", "put", root, "mails", *words.split())
        assert (done.code, done.out) == (exits.USAGE, ""), words
    assert jobs(root) == []
