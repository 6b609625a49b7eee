"""Every command in places whose names are not UTF-8, about names that are not ASCII, in locales that are ASCII.

It ends with its result, or with one line on standard error; what it prints can be encoded, whatever the locale says.
"""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import redis
from tests.tools import spoiled
from tests.tools.conftest import Done
from tests.tools.spoiled import snapshot_of
from tests.until import until

import tidelog
from tidelog.disk.readable import readable
from tidelog.tools import exits
from tidelog.tools.text import path_value

CHILD = Path(__file__).with_name("awkward_child.py")
KEY = b"caf\xc3\xa9-\xff"  # also a group and a consumer
TYPED = os.fsdecode(KEY)
QUEUE, GROUP, WORKER = "qafé", "gé", "wé"
HOME, STORE = (os.fsdecode(name) for name in (b"h\xc3\xb6me \xfe", b"st\xc3\xa9re-\xff"))
# Python takes LC_ALL=C for UTF-8, unless it is told not to. A UTF-8 locale such as en_US is strict, C.UTF-8 is not.
LOCALES = {
    "strict": {"LC_ALL": "C.UTF-8", "PYTHONIOENCODING": "utf-8:strict"},
    "POSIX": {"LC_ALL": "POSIX", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"},
    "C": {"LC_ALL": "C"},
    "ASCII": {"LC_ALL": "C.UTF-8", "PYTHONIOENCODING": "ascii"},
    "Latin-1": {"LC_ALL": "C.UTF-8", "PYTHONIOENCODING": "latin-1"},
}
LEFT_OUT = {
    "console": "it runs until it is stopped",
    "crash machine": "it mounts file systems, as root; its outputs are those of `crash`",
    "crash witness": "it runs until it is stopped",
    "serve": "a test of its own",
}


class Place(NamedTuple):
    """A store with awkward names in it, in an awkward directory."""

    root: Path
    entry: str  # the ID of an entry of KEY
    dead: str  # of a dead job of QUEUE


def environment(locale: str) -> dict[str, str]:
    kept = {
        name: value for name, value in os.environ.items() if not name.startswith(("LC_", "LANG"))
    }
    paths = os.pathsep.join(filter(None, sys.path))
    return {**kept, "PYTHONPATH": paths, **LOCALES[locale]}


def typed(locale: str, cwd: Path, *words: object, **env: str) -> Done:
    """One command line, in a process of its own."""
    done = subprocess.run(
        [sys.executable, "-m", "tidelog", *map(str, words)],
        env=environment(locale) | env, cwd=cwd, capture_output=True, stdin=subprocess.DEVNULL,
    )  # fmt: skip
    return Done(done.returncode, done.stdout.decode(), done.stderr.decode())


@pytest.fixture
def place(tmp_path: Path) -> Place:
    root = tmp_path / HOME / STORE
    root.parent.mkdir()
    spoiled.store(root)
    with tidelog.open(root, fsync="no", save=(), checkpoint_bytes=0) as db:
        entry = db.xadd(KEY, {KEY: KEY})
        db.xgroup_create(KEY, KEY, id="0")
        db.execute_command("XREADGROUP", "GROUP", KEY, KEY, "STREAMS", KEY, ">")
        db.set(KEY + b"s", KEY)
        queue = db.queue(QUEUE, group=GROUP, codec="bytes")
        queue.put_many([b"x\xff", b"y", b"z"])
        for end in ("fail", "nack"):
            job = queue.get(WORKER, block=0)
            assert job is not None
            getattr(job, end)("nö \udcff")
        (dead,) = queue.dead
        assert entry is not None
        return Place(root, entry.decode(), dead.id)


def lines(place: Place, to: Path) -> list[tuple[int, tuple[object, ...]]]:
    """Command lines, each with its exit code."""
    root, entry, dead = place
    kept = snapshot_of(root)
    # fmt: off
    fine: list[tuple[object, ...]] = [
        *(line(kept if line in spoiled.of_a_snapshot(root) else root, to / f"{name}-{number}".replace(" ", "-"))
          for name, each in spoiled.reading(root).items() for number, line in enumerate(each)
          if name not in ("why", "queue dead show", "replica verify", "crash replay", "import", "export")
          and "--aof" not in line(root, to)),
        ("rdb", "export", root, to / "é.rdb", "--json"),
        ("import", to / "import", to / "é.rdb", "--key", TYPED, "--json"),
        ("cat", root, TYPED), ("cat", root, TYPED, "--json"), ("cat", root, TYPED, "--csv"), ("cat", root, TYPED + "s"),
        ("why", root, TYPED, entry), ("why", root, TYPED, entry, "--json"),
        ("state", root, "--json", "--full"), ("info", root, "--json"), ("digest", root, "--json"),
        ("top", root, "--once", "--filter", TYPED), ("top", root, "--json"),
        ("verify", root, "--json"), ("repair", root, "--json"), ("diff", root, root, "--json"),
        ("aof", "dump", root, "--key", TYPED, "--group", TYPED, "--consumer", TYPED), ("aof", "dump", root, "--json"),
        ("aof", "dump", root, "--command", TYPED), ("aof", "ls", root, "--json"), ("aof", "stats", root, "--json"),
        ("aof", "plot", root, "-o", to / "é.png", "--key", TYPED, "--group", TYPED),
        ("config", root, "set", "masteruser=é"), ("config", root), ("config", root, "--json"),
        ("queue", "ls", root), ("queue", "ls", root, "--json"), ("queue", "watch", root, "--looks", 1),
        *(("queue", *words.split(), root, QUEUE, *more) for more in ((), ("--json",))
          for words in ("stats", "peek", "failures", "dead ls")),
        ("queue", "dead", "show", root, QUEUE, dead), ("queue", "dead", "show", root, QUEUE, dead, "--json"),
        ("queue", "status", root, QUEUE, dead), ("queue", "status", root, QUEUE, dead, "--json"),
        ("queue", "find", root, QUEUE, "--job-key", "é", "--header", "é=ü", "--json"), ("queue", "find", root, QUEUE),
        ("queue", "put", root, QUEUE, "é", "--group", GROUP, "--codec", "str", "--header", "é=ü", "--job-key", "é"),
        ("queue", "schedule", "add", root, "é", QUEUE, "--every", 3600), ("queue", "schedule", "ls", root),
        *(("queue", "schedule", verb, root, "é", "--json") for verb in ("pause", "resume", "rm")),
        ("queue", "dead", "redrive", root, QUEUE, "--json"), ("queue", "dead", "purge", root, QUEUE, "--yes"),
        ("worker", root, QUEUE, "builtins:repr", "--until-idle", 0, "--group", GROUP, "--name", WORKER),
        ("queue", "forget", root, QUEUE, "é"), ("queue", "pause", root, QUEUE),
        ("queue", "resume", root, QUEUE, "--json"), ("queue", "purge", root, QUEUE, "--yes", "--json"),
        ("queue", "dead", "purge", root, QUEUE, "--yes"),
        ("queue", "rm", root, QUEUE, "--json"),
        ("snapshot", "create", root), ("snapshot", "create", root, "--json"), ("snapshot", "ls", root, "--json"),
        ("snapshot", "show", kept, "--json"), ("snapshot", "verify", kept, "--json"),
        ("snapshot", "copy", kept, to / "copy", "--json"), ("snapshot", "restore", kept, to / "new", "--json"),
        ("replica", "status", root, "--json"), ("replica", "promote", root), ("replica", "promote", root, "--json"),
        ("export", kept, "--to", to / "export", "--json"), ("completion", "bash"),
        ("report", root, "-o", to / "é.html", "--queue", QUEUE, "--log"),
        ("crash", "--minutes", 0, "--layers", "kill", "--jobs", 1, "--dir", to, "--keep", to / "found"),
        ("demo", "--file", to / "é.rdb", "--seconds", 1, "--lines", 20, "--keep", to / "demo"),
    ]
    return [
        *((exits.OK, words) for words in fine),
        (exits.DIFFERS, ("diff", "--state", root, kept)),
        (exits.ADVICE, ("doctor", root)), (exits.ADVICE, ("doctor", root, "--json")),
        (exits.NOT_A_STORE, ("cat", root, TYPED + "x")),
        (exits.NOT_A_STORE, ("why", root, TYPED, "1-1")),
        (exits.USAGE, ("why", root, TYPED, TYPED)),
        (exits.NOT_A_STORE, ("queue", "peek", root, TYPED)),
        (exits.NOT_A_STORE, ("queue", "cancel", root, QUEUE, dead)),
        (exits.NOT_A_STORE, ("queue", "move", root, QUEUE, dead, "--delay", "1h")),
        (exits.REFUSED, ("queue", "put", root, TYPED, "1", "--create")),
        (exits.USAGE, ("queue", "put", root, QUEUE, TYPED)),
        (exits.USAGE, ("worker", root, QUEUE, f"{TYPED}:{TYPED}")),
        (exits.REFUSED, ("replica", "verify", root)),
        (exits.REFUSED, ("snapshot", "restore", kept, root)),
        (exits.NOT_A_STORE, ("crash", "replay", to / TYPED)),
        (exits.NOT_A_STORE, ("crash", "plug", to / TYPED, "--after", "--witness", "127.0.0.1:1")),
        (exits.NOT_A_STORE, ("info", to / TYPED)),
        (exits.USAGE, (TYPED,)),
        (exits.USAGE, ("info", root, f"--{TYPED}")),
        (exits.USAGE, ("serve", root, "--port", TYPED)),
        (exits.USAGE, ("serve", root, "--unixsocket", TYPED)),
        (exits.USAGE, ("serve", root, "--option", f"{TYPED}={TYPED}")),
        (exits.OK, ("snapshot", "prune", root, "--keep", 1, "--json")),
    ]
    # fmt: on


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("locale", LOCALES)
def test_every_command(place: Place, tmp_path: Path, locale: str) -> None:
    to = tmp_path / HOME / "to é"
    to.mkdir()
    table = lines(place, to)
    for _, words in table:
        for word in words:
            if isinstance(word, Path) and word.is_relative_to(to):
                word.parent.mkdir(exist_ok=True)
    encoded = [[os.fsencode(str(word)).decode("latin-1") for word in words] for _, words in table]
    given, outcomes = tmp_path / "lines", tmp_path / "outcomes"
    given.write_text("".join(json.dumps(words) + "\n" for words in encoded))
    subprocess.run(
        [sys.executable, str(CHILD), str(given), str(outcomes)],
        env=environment(locale), stdin=subprocess.DEVNULL, check=True,
    )  # fmt: skip
    told = [json.loads(line) for line in outcomes.read_text().splitlines()]
    assert len(told) == len(table)
    encoding = "latin-1" if locale == "Latin-1" else "utf-8"
    wrong: list[tuple[object, ...]] = []
    for (code, words), (found, out, err) in zip(table, told, strict=True):
        try:
            err.encode("latin-1").decode(encoding)
            if not {"resp", "--resp", "--csv"} & {*words}:  # the bytes as they are
                out.encode("latin-1").decode(encoding)
        except UnicodeDecodeError as error:
            wrong.append((words, error))
        last = err.splitlines()[-1:] or [""]
        told_well = code in (exits.OK, exits.DIFFERS, exits.ADVICE) or last[0].startswith(
            ("tidelog: ", "Error: ")
        )
        if found != code or "Traceback" in err or not told_well:
            wrong.append((words, found, code, err[-1500:]))
    assert not wrong, "\n".join(map(str, wrong))


def test_the_table_has_every_command() -> None:
    table = lines_without_a_store()
    names = {
        name
        for name, _ in spoiled.leaves()
        for _, words in table
        if name.split() == [*map(str, words[: len(name.split())])]
    }
    assert {name for name, _ in spoiled.leaves()} - names == {*LEFT_OUT} - {"serve"}


def lines_without_a_store() -> list[tuple[int, tuple[object, ...]]]:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(spoiled, "snapshot_of", lambda root: root)
        patched.setattr(sys.modules[__name__], "snapshot_of", lambda root: root)
        return lines(Place(Path("root"), "1-1", "1-1"), Path("to"))


def test_a_locale_of_ascii_names_and_shows_any_name(place: Place) -> None:
    home = place.root.parent
    shown = str(home).replace("\udcfe", r"\xfe")
    done = typed("POSIX", home, "queue", "peek", place.root, "qaf\u00e9x")
    assert done == (
        exits.NOT_A_STORE,
        "",
        f"tidelog: there is no queue qaféx in {shown}/stére-\\xff: it holds mails, {QUEUE}\n",
    )
    done = typed("POSIX", home, "snapshot", "ls", place.root, "--json")
    (name,) = (place.root / "snapshots").glob("0*")
    assert json.loads(done.out)["path"] == path_value(name) != str(name)
    line = f"tidelog queue peek {shlex.quote(str(place.root))} qafé:d"
    done = typed(
        "POSIX", home, _TIDELOG_COMPLETE="bash_complete", COMP_WORDS=line, COMP_WORD="qafé:d"
    )
    assert (done.code, done.out, done.err) == (exits.OK, f"plain,{QUEUE}:dead\n", "")


def test_a_server_whose_files_have_awkward_names(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = place.root.parent
    # The name of a socket is short, and that of a temporary directory may be long.
    monkeypatch.chdir(home)
    words = ("serve", place.root, "--port", 0, "--unixsocket", "é.sock", "--logfile", "é.log")
    with subprocess.Popen(
        [sys.executable, "-m", "tidelog", *map(str, words), "--option", "slowlog-log-slower-than=0"],
        env=environment("POSIX"), cwd=home, stderr=subprocess.PIPE,
    ) as server:  # fmt: skip
        assert server.stderr is not None
        until(lambda: (home / "é.sock").is_socket() or server.poll() is not None)
        try:
            client: Any = redis.Redis(unix_socket_path="é.sock", encoding_errors="surrogateescape")
            with client, client.monitor() as watching:
                assert "stére" in client.config_get("dir")["dir"]
                assert client.info()["tcp_port"] == 0
                assert "é.sock" in client.client_list()[0]["addr"]
                assert client.slowlog_get() and watching.next_command()
                client.save()
                assert client.execute_command("TIDELOG", "STATUS")
        finally:
            server.send_signal(signal.SIGTERM)
        said = server.stderr.read() + (home / "é.log").read_bytes()
    assert server.returncode == exits.OK
    assert b"Traceback" not in said and b"Logging error" not in said
    assert rb"st\xc3\xa9re-\xff".decode("unicode_escape").encode("latin-1") not in said
    assert "stére-\\xff" in said.decode()


@pytest.mark.parametrize(
    ("text", "shown"),
    [("é", "é"), ("a\udcffb", r"a\xffb"), ("\ud800", r"\ud800"), ("\udcc3\udca9", r"\xc3\xa9")],
)
def test_what_no_encoding_takes(text: str, shown: str) -> None:
    assert readable(text) == shown
    assert "é€\udcff".encode("latin-1", "tidelog.readable") == b"\xe9\\xe2\\x82\\xac\\xff"
