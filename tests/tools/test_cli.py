"""The command as a whole: help, version, what errors look like, and their exit codes."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from tests.rounds import rest_slow
from tests.tools.conftest import Run, expect
from tests.tools.made import Made

import tidelog
from tidelog.aof import identity
from tidelog.tools import exits
from tidelog.tools.commands import AOF, REPLICA, TOP
from tidelog.tools.lazy import loaded

COMMANDS = {
    **TOP,
    **{f"aof {name}": row for name, row in AOF.items()},
    **{f"replica {name}": row for name, row in REPLICA.items()},
}


def test_help(run: Run, tmp_path: Path) -> None:
    done = run("--help")
    assert (done.code, done.err) == (0, "")
    expect("help.txt", done.out, tmp_path)
    expect("help-aof.txt", run("aof", "--help").out, tmp_path)


def test_version(run: Run) -> None:
    assert run("--version").out == f"tidelog {tidelog.__version__}\n"


def test_python_m() -> None:
    done = subprocess.run(
        [sys.executable, "-c", "import sys; sys.argv[1:] = ['--version']; import runpy\n"
         f"sys.path[:0] = {sys.path!r}; runpy.run_module('tidelog', run_name='__main__')"],
        capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (0, f"tidelog {tidelog.__version__}\n"), done.stderr


def test_help_loads_no_tables() -> None:
    """rich is half of the time a help text would take, and no help text needs it."""
    script = (
        f"import sys; sys.path[:0] = {sys.path!r}\n"
        "from tidelog.tools import cli; cli.run(['--help']); print('rich' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=120
    )
    assert done.stdout.endswith("False\n"), done.stderr


@pytest.mark.parametrize(
    "args", [["nonsense"], ["aof", "nonsense"], ["aof", "dump"], ["info", "--what"]]
)
def test_usage_errors(run: Run, args: list[str]) -> None:
    done = run(*args)
    assert (done.code, done.out) == (exits.USAGE, "")
    assert "Error:" in done.err


READERS = ["aof ls", "aof dump", "aof verify", "aof export --resp", "info", "digest"]


@pytest.mark.parametrize("command", READERS)
def test_no_such_store(run: Run, tmp_path: Path, command: str) -> None:
    missing = tmp_path / "nothing"
    done = run(*command.split(), missing)
    assert done == (
        exits.NOT_A_STORE,
        "",
        f"tidelog: {missing} is not a tidelog store: the directory does not exist. Give the path of a store. "
        "To create a store, open a missing or empty directory for writing\n",
    )
    assert not missing.exists()


@pytest.mark.parametrize("command", READERS)
def test_another_kind_of_directory(run: Run, tmp_path: Path, command: str) -> None:
    (tmp_path / "STORE").write_text("groceries\n")
    done = run(*command.split(), tmp_path)
    assert (done.code, done.out, done.err.count("\n")) == (exits.NOT_A_STORE, "", 1)


@pytest.mark.parametrize("command", READERS)
def test_a_newer_format(run: Run, made: Made, command: str) -> None:
    text = identity.render(bytes(16)).replace(b"format 1", b"format 9")
    head = text[: text.index(b"crc32c ")]
    from tidelog.engine.crc32c import crc32c_of

    (made.root / "STORE").write_bytes(head + b"crc32c %08x\n" % crc32c_of(head))
    done = run(*command.split(), made.root)
    assert (done.code, done.out) == (exits.NEWER, "")
    assert "format version 9" in done.err and done.err.count("\n") == 1


@pytest.mark.parametrize("command", ["aof dump", "aof export --resp", "info", "digest"])
def test_damage_is_one_line_with_file_and_offset(run: Run, made: Made, command: str) -> None:
    made.flip(made.offsets[1] + 60)
    made.promise(made.lsn - 1, incarnation=0xB2)
    done = run(*command.split(), made.root)
    assert done.code == exits.DAMAGED
    assert done.err.count("\n") == 1
    assert f"{made.path()}, byte {made.offsets[1]}: " in done.err


@pytest.mark.parametrize("command", READERS)
def test_a_reader_changes_nothing(run: Run, made: Made, command: str) -> None:
    before = {
        p: (p.stat().st_mtime_ns, p.read_bytes()) for p in made.root.rglob("*") if p.is_file()
    }
    assert run(*command.split(), made.root).code == 0
    after = {p: (p.stat().st_mtime_ns, p.read_bytes()) for p in made.root.rglob("*") if p.is_file()}
    assert after == before


def test_a_reader_who_has_seen_enough(made: Made) -> None:
    """`tidelog aof dump | head -1` ends quietly."""
    script = (
        f"import sys; sys.path[:0] = {sys.path!r}\n"
        "from tidelog.tools import cli; from tidelog.tools.aof import dump; from itertools import repeat\n"
        "show = dump.as_lines\n"
        "dump.as_lines = lambda record: show(record) * 10_000\n"
        f"sys.exit(cli.run(['aof', 'dump', {str(made.root)!r}]))"
    )
    child = subprocess.Popen(
        [sys.executable, "-c", script], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert child.stdout is not None and child.stderr is not None
    child.stdout.readline()
    child.stdout.close()
    assert child.stderr.read() == b""
    child.stderr.close()
    assert child.wait(120) == 0


@pytest.mark.parametrize(
    "name", sorted(set(COMMANDS) - {"aof", "queue", "rdb", "replica", "snapshot"})
)
def test_every_commands_help_has_examples_that_run(run: Run, made: Made, name: str) -> None:
    done = run(*name.split(), "--help")
    assert done.code == 0
    lines = done.out.partition("Examples:\n")[2].strip().splitlines()
    assert lines
    for line in lines:
        words = line.replace(";", " |").split(" | ")[0].split()
        assert words[0] == "tidelog" and " ".join(words[1:]).startswith(name)
        command = loaded(COMMANDS[name][0])
        # Every option and argument is one that the command has.
        with command.make_context(name, words[1 + len(name.split()) :]) as context:
            assert context.params


def test_what_may_not_be_read(made: Made) -> None:
    """Each command, one after the other in a process that is not root."""
    program = (
        "import os, sys\n"
        "from tidelog.tools import cli\n"
        "from tidelog.tools.commands import AOF, TOP\n"
        "from importlib import import_module\n"
        "for module, _ in (*TOP.values(), *AOF.values()):\n"
        "    isinstance(module, str) and import_module(module)\n"
        "if os.getuid() == 0:\n"
        "    os.setuid(65534)\n"
        "for command in sys.argv[2:]:\n"
        "    print(command, cli.run([*command.split(), sys.argv[1]]))\n"
    )
    (made.root / "STORE").chmod(0)
    made.root.chmod(0)
    try:
        done = subprocess.run(
            [sys.executable, "-c", program, str(made.root), *READERS],
            capture_output=True,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
            text=True,
        )
    finally:
        made.root.chmod(0o700)
        (made.root / "STORE").chmod(0o600)
    assert done.stdout.splitlines() == [f"{command} {exits.SYSTEM}" for command in READERS]
    refused = f"tidelog: {made.root}/STORE: Permission denied"
    assert done.stderr.splitlines() == [refused] * len(READERS)


@pytest.mark.parametrize("command", rest_slow(["--help", *READERS], 2))
def test_an_output_that_takes_nothing(made: Made, command: str) -> None:
    words = [sys.executable, "-m", "tidelog", *command.split(), str(made.root)]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    with open("/dev/full", "wb") as full:
        done = subprocess.run(words, stdout=full, stderr=subprocess.PIPE, env=env, text=True)
    assert done.returncode == exits.SYSTEM
    assert done.stderr == (
        "tidelog: no space left on the device of the output; free some and run again\n"
    )
    shell = ["sh", "-c", 'exec "$@" >&-', "sh", *words]
    closed = subprocess.run(shell, stderr=subprocess.PIPE, env=env, text=True)
    assert (closed.returncode, closed.stderr) == (0, "")


def on_a_disk_of(nbytes: int, *args: object) -> subprocess.CompletedProcess[str]:
    """Run the command line where no file may be longer, which fails as a full disk does."""
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    env["PYTHONDONTWRITEBYTECODE"] = "1"  # a cached module would be cut short as well
    words = [sys.executable, "-m", "tidelog", *map(str, args)]
    shell = ["prlimit", f"--fsize={nbytes}", *words]
    return subprocess.run(shell, capture_output=True, env=env, text=True)


@pytest.mark.parametrize("args", [("dead", "redrive"), ("purge", "--yes")])
def test_a_write_for_which_there_is_no_room(tmp_path: Path, args: tuple[str, ...]) -> None:
    with tidelog.queue(tmp_path / "data", "mails") as mails:
        mails.put_many([1, 2])
        job = mails.get()
        assert job is not None and job.fail("no such address")
    done = on_a_disk_of(100, "queue", *args, tmp_path / "data", "mails")
    assert done.returncode == exits.SYSTEM
    assert "the call stored nothing" in done.stderr and "Traceback" not in done.stderr


@pytest.fixture(scope="module")
def snapshot(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """A snapshot that lies elsewhere than its store, and the digest of what it holds."""
    root = tmp_path_factory.mktemp("snapshot")
    with tidelog.open(root / "data") as db:
        db.xadd("orders", {"item": "tea"})
        db.set("last", "1-0")
        db.queue("mails").put("hello")
        made = db.snapshot()
        digest = db.digest()
        db.xadd("orders", {"item": "later"})
    path = shutil.move(made.path, root / "kept")
    shutil.rmtree(root / "data")
    return Path(path), digest


@pytest.mark.parametrize("command", ["aof verify", "repair", "snapshot ls", "snapshot create"])
def test_a_snapshot_where_a_log_or_a_store_is_needed(
    run: Run, snapshot: tuple[Path, str], command: str
) -> None:
    done = run(*command.split(), snapshot[0])
    assert (done.code, done.out) == (exits.NOT_A_STORE, "")
    assert "is not a tidelog store: it is a snapshot." in done.err
    assert "tidelog snapshot restore SNAPSHOT NEW-DIRECTORY" in done.err


def test_every_command_that_reads_takes_a_snapshot(
    run: Run, snapshot: tuple[Path, str], tmp_path: Path
) -> None:
    path, digest = snapshot
    before = sorted((each.name, each.stat().st_mtime_ns) for each in path.iterdir())
    assert run("digest", path).out == f"{digest}\n"
    done = run("info", path)
    assert done.code == 0 and "snapshot     of the store " in done.out, done.err
    assert "log          0 records in 0 segments" in done.out
    facts = json.loads(run("info", path, "--json").out)
    assert (facts["segments"], facts["records"], facts["bytes"]) == (0, 0, 0)
    assert facts["snapshot_lsn"] == facts["durable_lsn"] > 0
    assert [row["key"] for row in facts["streams"]] == ["mails", "orders"]
    for command in ("aof ls", "aof dump", "aof dump --follow", "aof dump --past-damage"):
        done = run(*command.split(), path)
        assert done.code == 0 and "1-0" not in done.out and "tea" not in done.out
        said = (
            f"{path} is a snapshot: it contains the state at LSN {facts['snapshot_lsn']} and no log"
        )
        assert done.err == f"tidelog: {said}\n"
    out = tmp_path / "orders.resp"
    assert run("aof", "export", "--resp", path, "-o", out).code == 0
    assert b"tea" in out.read_bytes() and b"later" not in out.read_bytes()
    assert run("queue", "ls", path).code == run("queue", "peek", path, "mails").code == 0
    done = run("verify", path)
    assert done.code == 0 and "snapshot    ok" in done.out and "frames      left out" in done.out
    assert sorted((each.name, each.stat().st_mtime_ns) for each in path.iterdir()) == before


def test_a_damaged_snapshot(run: Run, snapshot: tuple[Path, str], tmp_path: Path) -> None:
    path = tmp_path / "damaged"
    shutil.copytree(snapshot[0], path)
    data = bytearray((path / "data.mdb").read_bytes())
    data[data.rindex(b"tea")] ^= 1
    (path / "data.mdb").write_bytes(data)
    done = run("verify", path, "--json")
    assert done.code == exits.VERIFY_SNAPSHOT
    assert {finding["check"] for finding in json.loads(done.out)["findings"]} == {"snapshot"}
    (path / "data.mdb").write_bytes(data[:-4096])
    for command in ("info", "digest", "aof ls", "aof export --resp"):
        done = run(*command.split(), path)
        assert (done.code, done.out, done.err.count("\n")) == (exits.DAMAGED, "", 1)


def test_half_an_export_does_not_stay(made: Made, tmp_path: Path) -> None:
    """It would load without a complaint, and what is missing would be missed later."""
    path = tmp_path / "orders.resp"
    done = on_a_disk_of(500, "aof", "export", "--resp", made.root, "-o", path)
    assert (done.returncode, done.stderr) == (exits.SYSTEM, f"tidelog: {path}: File too large\n")
    assert not path.exists()


def test_commands_that_moved_work_and_say_where_they_are(
    run: Run, made: Made, tmp_path: Path
) -> None:
    """The exit code and standard output are those of the new command; one line on standard error names it."""
    now, before = run("repair", made.root), run("aof", "repair", made.root)
    assert (before.code, before.out) == (now.code, now.out)
    assert before.err == "`tidelog aof repair` is now `tidelog repair`\n" + now.err
    assert run("rdb", "export", made.root, tmp_path / "dump.rdb").code == 0
    done = run("rdb", "import", tmp_path / "new", tmp_path / "dump.rdb", "--key", "o*", "--db", 0)
    assert done.err == "`tidelog rdb import` is now `tidelog import`\n"
    assert done.out == run(
        "import", tmp_path / "other", tmp_path / "dump.rdb", "--key", "o*", "--db", 0
    ).out.replace("other", "new")
    for group in ("aof", "rdb"):
        assert "Show what can be kept" not in run(group, "--help").out
        assert not {"repair", "import"} & {
            *run(group, "--help").out.partition("Commands:")[2].split()
        }
