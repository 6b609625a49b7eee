"""tidelog queue: what is shown of queues, with every option, and every error."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from tests.rounds import rest_slow
from tests.tools.conftest import Done, Run, expect
from tests.tools.queue_made import START, mails
from tests.tools.terminal import on_a_terminal

import tidelog
from tidelog.testing import Clock
from tidelog.tools import exits
from tidelog.tools.commands import DEAD, QUEUE, SCHEDULE
from tidelog.tools.lazy import loaded
from tidelog.tools.queue import stats as queue_stats
from tidelog.tools.queue import store as queue_store

COMMANDS = {
    **{f"queue {name}": row for name, row in QUEUE.items()},
    **{f"queue dead {name}": row for name, row in DEAD.items()},
    **{f"queue schedule {name}": row for name, row in SCHEDULE.items()},
}
# Command lines that only read, without the store's path, which is the first argument of each.
READERS = [
    ("ls",),
    ("stats", "mails"),
    ("peek", "mails"),
    ("failures", "mails"),
    ("dead ls", "mails"),
    ("dead show", "mails", "1700000000000-0"),
    ("dead redrive", "mails", "--dry-run"),
    ("dead purge", "mails", "--dry-run"),
    ("purge", "mails", "--dry-run"),
]
WRITERS = [
    ("dead redrive", "mails"),
    ("dead purge", "mails", "--yes"),
    ("purge", "mails", "--yes"),
]


def words(line: tuple[str, ...], root: Path) -> list[str]:
    return ["queue", *line[0].split(), str(root), *line[1:]]


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """The clock of the store and, from then on, of the command line."""
    clock = Clock(START)
    monkeypatch.setattr(queue_store, "CLOCK", clock)
    return clock


@pytest.fixture
def root(tmp_path: Path, clock: Clock) -> Path:
    """The store whose outputs are kept."""
    path = tmp_path / "orders-data"
    with mails(path, clock):
        pass
    return path


@pytest.fixture
def writer(tmp_path: Path, clock: Clock) -> Iterator[tidelog.Store]:
    """The same at the same place, still open in its writer: this process."""
    with mails(tmp_path / "orders-data", clock) as db:
        yield db


def files(root: Path) -> dict[Path, tuple[int, bytes]]:
    return {p: (p.stat().st_mtime_ns, p.read_bytes()) for p in root.rglob("*") if p.is_file()}


def objects(done: Done) -> list[Any]:
    assert (done.code, done.err) == (0, "")
    return [json.loads(line) for line in done.out.splitlines()]


# --- help


def test_help(run: Run, tmp_path: Path) -> None:
    expect("queue-help.txt", run("queue", "--help").out, tmp_path)
    expect("queue-dead-help.txt", run("queue", "dead", "--help").out, tmp_path)
    expect("queue-schedule-help.txt", run("queue", "schedule", "--help").out, tmp_path)


@pytest.mark.parametrize("name", ["queue", *COMMANDS])
def test_every_help_has_examples_that_run(run: Run, name: str) -> None:
    done = run(*name.split(), "--help")
    assert done.code == 0
    lines = done.out.partition("Examples:\n")[2].strip().splitlines()
    assert lines
    for line in map(str.strip, lines):
        example = shlex.split(line.split(" | ")[0])
        called = max((c for c in COMMANDS if line.startswith(f"tidelog {c} ")), key=len)
        assert called.startswith(name)
        command = loaded(COMMANDS[called][0])
        with command.make_context(called, example[1 + len(called.split()) :]) as context:
            assert context.params


def test_help_loads_neither_rich_nor_the_queue() -> None:
    script = (
        f"import sys; sys.path[:0] = {sys.path!r}\n"
        "from tidelog.tools import cli; cli.run(['queue', '--help'])\n"
        "print('rich' in sys.modules, 'tidelog.api.queue' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=120
    )
    assert done.stdout.endswith("False False\n"), done.stderr


# --- outputs

OUTPUTS = {
    "queue-ls": ("ls",),
    "queue-stats": ("stats", "mails"),
    "queue-peek": ("peek", "mails"),
    "queue-failures": ("failures", "mails"),
    "queue-dead-ls": ("dead ls", "mails"),
    "queue-dead-show": ("dead show", "mails", "1700000000000-0"),
}


@pytest.mark.parametrize("name", OUTPUTS)
def test_output(run: Run, root: Path, name: str) -> None:
    done = run(*words(OUTPUTS[name], root))
    assert (done.code, done.err) == (0, "")
    expect(f"{name}.txt", done.out, root)


@pytest.mark.parametrize("name", OUTPUTS)
def test_json(run: Run, root: Path, name: str) -> None:
    done = run(*words(OUTPUTS[name], root), "--json")
    assert objects(done)
    expect(f"{name}.json", done.out, root)


@pytest.mark.parametrize("line", READERS, ids=lambda line: line[0])
def test_a_reader_changes_nothing_beside_a_running_writer(
    run: Run, tmp_path: Path, writer: tidelog.Store, line: tuple[str, ...]
) -> None:
    root = tmp_path / "orders-data"
    before = files(root)
    done = run(*words(line, root))
    assert (done.code, done.err) == (0, "")
    assert files(root) == before


@pytest.mark.parametrize("line", READERS, ids=lambda line: line[0])
def test_the_folder_of_the_log_will_do(run: Run, root: Path, line: tuple[str, ...]) -> None:
    assert run(*words(line, root / "aof")) == run(*words(line, root))


def test_tables_are_drawn_on_a_terminal(root: Path) -> None:
    out, err = on_a_terminal("queue", "ls", root)
    assert "\u2502" in out and "mails" in out and err == ""


# --- ls


def test_a_store_without_queues(run: Run, tmp_path: Path) -> None:
    with tidelog.open(tmp_path / "data") as db:
        db.set("log", "no job")
    assert run("queue", "ls", tmp_path / "data", "--json").out == ""
    assert run("queue", "ls", tmp_path / "data").out.split("\n", 1)[1] == ""
    done = run("queue", "stats", tmp_path / "data", "log")
    assert done.code == exits.NOT_A_STORE and "there are none" in done.err


# --- stats


def test_rates_are_measured_beside_the_writer(
    run: Run,
    tmp_path: Path,
    writer: tidelog.Store,
    clock: Clock,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Two jobs are put and one is done in the four seconds between two looks."""
    root = tmp_path / "orders-data"
    before = objects(run("queue", "stats", root, "mails", "--json"))[0]
    slept = []

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        clock.advance(seconds)
        queue = writer.queue("mails")
        queue.put({"n": 1})
        queue.put({"n": 2})
        job = queue.get("quick", block=0)
        assert job is not None and job.ack()

    monkeypatch.setattr(queue_stats, "sleep", sleep)
    after = objects(run("queue", "stats", root, "mails", "--over", "4", "--json"))[0]
    assert slept == [4.0]
    assert after["depth"] == before["depth"] + 1
    assert (after["put_per_second"], after["done_per_second"]) == (0.5, 0.25)
    shown = run("queue", "stats", root, "mails", "--over", "4").out
    assert shown.endswith("put          0.5/s\ndone         0.5/s\n")  # one done, one undecodable


@pytest.mark.parametrize("seconds", ["0", "-1", "nan", "inf", "1e9", "soon"])
def test_over_which_no_rate_can_be_measured(run: Run, root: Path, seconds: str) -> None:
    done = run("queue", "stats", root, "mails", "--over", seconds)
    assert (done.code, done.out) == (exits.USAGE, "") and "--over" in done.err


# --- peek, failures


def test_peek_shows_delayed_jobs(tmp_path: Path, run: Run) -> None:
    clock = Clock()
    root = tmp_path / "data"
    with tidelog.queue(root, "mails", clock=clock) as mails:
        mails.put("now")
        later = mails.put({"to": "ann"}, at=clock.now() + timedelta(days=36_500 // 10 - 1))
    lines = run("queue", "peek", root, "mails", "--scheduled").out.splitlines()
    assert len(lines) == 2 and lines[0].split()[:2] == ["ID", "DUE"]
    assert lines[1].startswith(later) and "2035-12-" in lines[1]
    (shown,) = objects(run("queue", "peek", root, "mails", "--scheduled", "--json"))
    assert shown["id"] == later and shown["due_ms"] > shown["enqueued_ms"]
    assert "scheduled    1 not due yet" in run("queue", "stats", root, "mails").out


def test_codecs(run: Run, root: Path) -> None:
    """Each shows every job; what it cannot read comes as bytes with the reason."""
    for codec in ("json", "str", "bytes", "msgpack"):
        done = run("queue", "peek", root, "mails", "--codec", codec)
        assert (done.code, done.err) == (0, "")
        expect(f"queue-peek-{codec}.txt", done.out, root)
    as_bytes = objects(run("queue", "peek", root, "mails", "--codec", "bytes", "--json"))
    assert [job["undecodable"] for job in as_bytes] == [None] * 3
    as_json = objects(run("queue", "peek", root, "mails", "--json"))
    assert [job["undecodable"] is None for job in as_json] == [True, False, True]


def test_what_other_programs_left_among_the_jobs(run: Run, tmp_path: Path) -> None:
    root = tmp_path / "data"
    with tidelog.open(root) as db:
        db.queue("mails").put(1)
        for stream in ("mails", "mails:failures", "mails:dead", "mails:holds"):
            for fields in (
                {"what": b"\xff"},
                {"deliveries": "many", "id": "none", "header.\x1b": b"\xff\n"},
                {"errors": "[1, null, {}]", "workers": '{"a": [1]}', "codec": "\x1b[2J"},
                {"errors": '[{"at": -1, "worker": null}]', "workers": "[null, 1]", "id": "9-9"},
                {"errors": "{", "workers": b"\xff", "reason": "\x1b[2J", "value": "{}"},
            ):
                db.xadd(stream, {"group": "workers", **fields})
    for line in READERS[:5]:
        for as_json in ((), ("--json",)):
            done = run(*words(line, root), *as_json)
            assert (done.code, done.err) == (0, ""), line
            assert "\x1b" not in done.out
    dead = objects(run("queue", "dead", "ls", root, "mails", "--json"))
    assert len(dead) == 5
    for job in dead:
        done = run("queue", "dead", "show", root, "mails", job["id"])
        assert (done.code, done.err) == (0, "") and "\x1b" not in done.out


def test_count(run: Run, root: Path) -> None:
    for line in ("peek", "failures", "dead ls"):
        everything = run("queue", *line.split(), root, "mails", "--json").out.splitlines()
        first = run("queue", *line.split(), root, "mails", "--json", "--count", "1").out
        assert len(everything) > 1 and first.splitlines() == everything[:1]
        done = run("queue", *line.split(), root, "mails", "--count", "0")
        assert (done.code, done.out) == (exits.USAGE, "")


def test_failures_of_one_job(run: Run, root: Path) -> None:
    found = objects(run("queue", "failures", root, "mails", "--job", "1700000000000-0", "--json"))
    assert [(f["delivery"], f["worker"]) for f in found] == [(2, "worker-2"), (1, "worker-1")]
    assert run("queue", "failures", root, "mails", "--job", "1-1", "--json").out == ""


def test_failures_with_tracebacks(run: Run, root: Path) -> None:
    done = run("queue", "failures", root, "mails", "--traceback")
    assert (done.code, done.err) == (0, "")
    expect("queue-failures-traceback.txt", done.out, root)


# --- dead ls, dead show


def ids(done: Done) -> list[str]:
    return [job["original_id"] for job in objects(done)]


FIRST, SECOND, THIRD = "1700000000000-0", "1700000061000-0", "1700003661000-0"


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ([], [FIRST, SECOND, THIRD]),
        (["--reason", "NO SUCH"], [SECOND]),
        (["--reason", "no such", "--error", "mailbox"], [SECOND]),
        (["--reason", "no such", "--error", "timeout"], []),
        (["--error", "timeouterror: no answer"], [FIRST]),
        (["--older-than", "1h"], [FIRST, SECOND]),
        (["--older-than", "10s"], [FIRST, SECOND, THIRD]),
        (["--older-than", "12s"], [FIRST, SECOND]),
        (["--older-than", "1h0m", "--count", "1"], [FIRST]),
        (["--older-than", "1d"], []),
    ],
)
def test_filters(run: Run, root: Path, options: list[str], expected: list[str]) -> None:
    assert ids(run("queue", "dead", "ls", root, "mails", "--json", *options)) == expected


@pytest.mark.parametrize(
    "value", ["", "5w", "-5m", "1.5h", "2h1d", "nan", "9" * 10 + "d", "999999999d"]
)
def test_no_length_of_time(run: Run, root: Path, value: str) -> None:
    done = run("queue", "dead", "ls", root, "mails", f"--older-than={value}")
    assert (done.code, done.out) == (exits.USAGE, "")
    assert "'--older-than'" in done.err


def test_a_dead_job_by_either_of_its_ids(run: Run, root: Path) -> None:
    """The first died when the second was put: its ID is one that the other had."""
    dead = objects(run("queue", "dead", "ls", root, "mails", "--json"))
    assert dead[0]["id"] == dead[1]["original_id"] == SECOND
    found = {
        id: objects(run("queue", "dead", "show", root, "mails", id, "--json"))
        for id in (FIRST, SECOND, dead[1]["id"], dead[2]["id"])
    }
    assert list(found.values()) == [[dead[0]], [dead[0], dead[1]], [dead[1]], [dead[2]]]
    assert run("queue", "dead", "show", root, "mails", SECOND).out.count("dead job  ") == 2


def test_the_codec_of_the_evidence_and_another(run: Run, root: Path) -> None:
    with tidelog.open(root, clock=queue_store.CLOCK) as db:
        queue = db.queue("mails", codec="msgpack", max_deliveries=1)
        queue.purge()
        queue.put({"n": 7})
        job = queue.get(block=0)
        assert job is not None and job.fail("never mind")
        dead = job.id
    show = ("queue", "dead", "show", root, "mails", dead, "--json")
    (job_of,) = objects(run(*show))
    assert (job_of["value"], job_of["undecodable"]) == ({"n": 7}, None)
    (job_of,) = objects(run(*show, "--codec", "str"))
    assert job_of["value"] == {"base64": "gaFuBw=="} and "not UTF-8" in job_of["undecodable"]


def test_what_a_worker_could_not_decode(run: Run, tmp_path: Path) -> None:
    with tidelog.open(tmp_path / "data") as db:
        db.queue("mails", codec="bytes").put(b"\x80{")
        assert db.queue("mails").get(block=0) is None
    (job,) = objects(run("queue", "dead", "ls", tmp_path / "data", "mails", "--json"))
    assert job["value"] == {"base64": "gHs="} and job["undecodable"].startswith("not json: ")
    assert "DecodeError" in job["reason"]
    shown = run("queue", "dead", "show", tmp_path / "data", "mails", job["id"]).out
    assert '\nvalue        "\\x80{"  (not json: ' in shown


# --- errors


@pytest.mark.parametrize("line", [*READERS, *WRITERS], ids=" ".join)
def test_no_such_store(run: Run, tmp_path: Path, line: tuple[str, ...]) -> None:
    missing = tmp_path / "nothing"
    done = run(*words(line, missing))
    assert (done.code, done.out, done.err.count("\n")) == (exits.NOT_A_STORE, "", 1)
    assert done.err.startswith(
        f"tidelog: {missing} is not a tidelog store: the directory does not "
    )
    assert not missing.exists()
    empty = tmp_path / "empty"
    empty.mkdir()
    assert run(*words(line, empty)).code == exits.NOT_A_STORE
    assert not list(empty.iterdir())


@pytest.mark.parametrize("line", [*READERS[1:], *WRITERS], ids=" ".join)
def test_no_such_queue(run: Run, root: Path, line: tuple[str, ...]) -> None:
    before = run("digest", root)
    done = run(*words((line[0], "mial", *line[2:]), root))
    assert done == (
        exits.NOT_A_STORE,
        "",
        f"tidelog: there is no queue mial in {root}: it holds mails, orders\n",
    )
    done = run(*words((*line, "--group", "packers"), root))
    assert done == (
        exits.NOT_A_STORE,
        "",
        "tidelog: the queue mails has no group packers: --group may be workers\n",
    )
    assert run("digest", root) == before


def test_the_group_may_be_left_out_where_there_is_one(run: Run, root: Path) -> None:
    assert objects(run("queue", "stats", root, "orders", "--json"))[0]["group"] == "packers"
    with tidelog.open(root, clock=queue_store.CLOCK) as db:
        db.xgroup_create("orders", "billing", id="0")
    done = run("queue", "stats", root, "orders")
    assert (done.code, done.out) == (exits.NOT_A_STORE, "")
    assert "no group workers: --group may be billing, packers\n" in done.err
    done = run("queue", "stats", root, "orders", "--group", "billing", "--json")
    assert objects(done)[0]["group"] == "billing"


@pytest.mark.parametrize(
    "line", [("dead show",), ("dead redrive",), ("dead purge", "--yes")], ids=" ".join
)
@pytest.mark.parametrize("lost", ["1-1", "nonsense", "\x1b[2J", "9" * 30, "-"])
def test_no_such_dead_job(run: Run, root: Path, line: tuple[str, ...], lost: str) -> None:
    before = run("digest", root)
    known = [] if line[0] == "dead show" else [SECOND]
    done = run("queue", *line[0].split(), *line[1:], "--", root, "mails", *known, lost)
    assert (done.code, done.out, done.err.count("\n")) == (exits.NOT_A_STORE, "", 1)
    assert done.err.startswith("tidelog: there is no dead job ") and "\x1b" not in done.err
    assert run("digest", root) == before


@pytest.mark.parametrize("line", [*READERS, *WRITERS], ids=" ".join)
def test_damage_is_one_line_with_file_and_offset(
    run: Run, root: Path, line: tuple[str, ...]
) -> None:
    path = max((root / "aof").glob("*.aof"))
    data = bytearray(path.read_bytes())
    data[300] ^= 0x10
    path.write_bytes(data)
    done = run(*words(line, root))
    assert (done.code, done.out, done.err.count("\n")) == (exits.DAMAGED, "", 1)
    assert re.search(rf"{re.escape(str(path))}, byte \d+: ", done.err)


# --- what the output is connected to


@pytest.mark.parametrize("line", rest_slow([("dead redrive", "mails"), *READERS], 2), ids=" ".join)
def test_an_output_that_takes_nothing(root: Path, line: tuple[str, ...]) -> None:
    call = [sys.executable, "-m", "tidelog", *words(line, root)]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    with open("/dev/full", "wb") as full:
        done = subprocess.run(call, stdout=full, stderr=subprocess.PIPE, env=env, text=True)
    assert done.returncode == exits.SYSTEM
    assert done.stderr == (
        "tidelog: no space left on the device of the output; free some and run again\n"
    )
    shell = ["sh", "-c", 'exec "$@" >&-', "sh", *call]
    closed = subprocess.run(shell, stderr=subprocess.PIPE, env=env, text=True)
    assert (closed.returncode, closed.stderr) == (0, "")


@pytest.mark.parametrize("as_json", rest_slow([(), ("--json",)], 1))
def test_a_reader_who_has_seen_enough(tmp_path: Path, as_json: tuple[str, ...]) -> None:
    root = tmp_path / "data"
    with tidelog.open(root, fsync="no") as db:
        db.queue("mails").put_many({"n": n} for n in range(5_000))
    call = [sys.executable, "-m", "tidelog", "queue", "peek", str(root), "mails"]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    child = subprocess.Popen(
        [*call, "--count", "5000", *as_json],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=env,
    )
    assert child.stdout is not None and child.stderr is not None
    assert child.stdout.readline()
    child.stdout.close()
    assert child.stderr.read() == b""
    child.stderr.close()
    assert child.wait(120) == 0


@pytest.mark.parametrize(
    ("encoding", "lines"), [("ascii", READERS), ("latin-1", [("peek", "mails")])]
)
def test_an_output_in_another_encoding(
    root: Path, encoding: str, lines: list[tuple[str, ...]]
) -> None:
    program = (
        "import json, sys\n"
        "from tidelog.tools import cli\n"
        "sys.exit(max(map(cli.run, json.loads(sys.argv[1]))))"
    )
    env = {**os.environ, "PYTHONIOENCODING": encoding}
    env["PYTHONPATH"] = os.pathsep.join(filter(None, sys.path))
    told = json.dumps([words(line, root) for line in lines])
    done = subprocess.run([sys.executable, "-c", program, told], capture_output=True, env=env)
    assert (done.returncode, done.stderr) == (0, b"") and done.stdout
