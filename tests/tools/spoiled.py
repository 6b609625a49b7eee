"""Files that are not what a command expects, and the line of every command that takes a path."""

from __future__ import annotations

import os
import random
import re
import shutil
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from pathlib import Path

import click

import tidelog
from tidelog.tools import cli

Words = tuple[object, ...]
Line = Callable[[Path, Path], Words]
"""The words of a command line for a bad path, and for a directory to write into."""

KEY, QUEUE = "orders", "mails"


def leaves(name: str = "", command: click.Command = cli.cli) -> Iterator[tuple[str, click.Command]]:
    """Every command that runs something, with its full name."""
    if not isinstance(command, click.Group):
        yield name, command
        return
    context = click.Context(command)
    for each in command.list_commands(context):
        found = command.get_command(context, each)
        assert found is not None
        yield from leaves(f"{name} {each}".strip(), found)


def codes_of(command: click.Command) -> set[int]:
    """The exit codes that the help of a command names."""
    text = " ".join((command.epilog or "").split()).partition("Exit codes: ")[2]
    text = text.partition(" Examples:")[0]
    codes = {int(code) for code in re.findall(r"(?:^|, )(\d+) ", text)}
    for first, last in re.findall(r"(\d+) to (\d+)", text):
        codes |= {*range(int(first), int(last) + 1)}
    return codes


def store(root: Path) -> Path:
    """A store with everything that lies on a disk: a checkpoint, a snapshot, groups, a queue, and a log behind."""
    with tidelog.open(root, fsync="no", save=(), checkpoint_bytes=0, segment_bytes=4096) as db:
        for number in range(40):
            db.xadd(KEY, {"n": number, "pad": "x" * 200})
        db.xgroup_create(KEY, "packers", id="0")
        db.xreadgroup("packers", "anna", {KEY: ">"}, count=5)
        db.queue(QUEUE).put_many([{"to": "anna"}, {"to": "bob"}])
        db.checkpoint()
        db.snapshot()
        for number in range(40):
            db.xadd(KEY, {"n": number, "pad": "x" * 200})
    return root


def snapshot_of(root: Path) -> Path:
    (path,) = (root / "snapshots").glob("0*")
    return path


# --- the lines


@cache
def reading(good: Path) -> Mapping[str, tuple[Line, ...]]:
    """For every command that reads what lies at a path: its lines, with the path in each place where one can stand."""

    def plain(*words: object) -> Line:
        return lambda path, to: tuple(path if word is Path else word for word in words)

    def queue(*words: object) -> Line:
        return plain("queue", *words[:-1], Path, QUEUE, *([] if words[-1] is None else [words[-1]]))

    # fmt: off
    return {
        "aof ls":     (plain("aof", "ls", Path), plain("aof", "ls", Path, "--scan", "--json")),
        "aof dump":   (plain("aof", "dump", Path), plain("aof", "dump", Path, "--past-damage", "--json"),
                       plain("aof", "dump", Path, "--reverse", "--limit", 3),
                       plain("aof", "dump", Path, "--unit", "--key", "o*", "--format", "resp")),
        "aof stats":  (plain("aof", "stats", Path),),
        "aof plot":   (lambda path, to: ("aof", "plot", path, "-o", to / "x.svg"),),
        "aof verify": (plain("aof", "verify", Path), plain("aof", "verify", Path, "--no-replay")),
        "aof export": (plain("aof", "export", "--resp", Path),
                       lambda path, to: ("aof", "export", "--resp", path, "-o", to / "x.resp")),
        "info":       (plain("info", Path), plain("info", Path, "--at-lsn", 5)),
        "digest":     (plain("digest", Path),),
        "verify":     (plain("verify", Path, "--snapshots"),),
        "repair":     (plain("repair", Path), plain("repair", Path, "--skip-damaged"),
                       lambda path, to: ("repair", path, "--to", to / "copy")),
        "state":      (plain("state", Path, "--full"), plain("state", Path, "--at-lsn", 5)),
        "why":        (plain("why", Path, KEY, "1-1"),),
        "cat":        (plain("cat", Path, KEY), plain("cat", Path, KEY, "--at-lsn", 5, "--csv")),
        "top":        (plain("top", Path, "--once"),),
        "diff":       (plain("diff", Path, good), plain("diff", good, Path),
                       plain("diff", "--state", Path, good), plain("diff", "--state", good, Path)),
        "rdb export": (lambda path, to: ("rdb", "export", path, to / "x.rdb"),),
        "report":     (lambda path, to: ("report", path, "-o", to / "x.html"),),
        "export":     (lambda path, to: ("export", path, "--to", to / "x", "--master", "none"),),
        "replica status": (plain("replica", "status", Path), plain("replica", "status", good, Path)),
        "replica verify": (plain("replica", "verify", Path),),
        "queue ls":       (plain("queue", "ls", Path),),
        "queue stats":    (queue("stats", None),),
        "queue peek":     (queue("peek", None),),
        "queue failures": (queue("failures", None),),
        "queue dead ls":  (queue("dead", "ls", None),),
        "queue dead show":  (queue("dead", "show", "1-1"),),
        "snapshot ls":      (plain("snapshot", "ls", Path),),
        "snapshot show":    (plain("snapshot", "show", Path),),
        "snapshot verify":  (plain("snapshot", "verify", Path),),
        "snapshot copy":    (lambda path, to: ("snapshot", "copy", path, to / "copy"),),
        "snapshot restore": (lambda path, to: ("snapshot", "restore", path, to / "new"),
                             lambda path, to: ("snapshot", "restore", snapshot_of(good), to / "new", "--aof", path)),
        "import":           (lambda path, to: ("import", to / "new", path),
                             lambda path, to: ("import", to / "new", path, "--dry-run")),
        "crash replay":     (plain("crash", "replay", Path),),
    }
    # fmt: on


@cache
def changing() -> Mapping[str, tuple[Line, ...]]:
    """For every command that changes a store: its lines."""
    # fmt: off
    return {
        "repair":             (lambda path, to: ("repair", path, "--in-place"),),
        "snapshot create":    (lambda path, to: ("snapshot", "create", path),),
        "snapshot prune":     (lambda path, to: ("snapshot", "prune", path, "--keep", 1),),
        "queue dead redrive": (lambda path, to: ("queue", "dead", "redrive", path, QUEUE),),
        "queue dead purge":   (lambda path, to: ("queue", "dead", "purge", path, QUEUE, "--yes"),),
        "queue purge":        (lambda path, to: ("queue", "purge", path, QUEUE, "--yes"),),
    }
    # fmt: on


def of_a_snapshot(good: Path) -> list[Line]:
    """The lines whose path is that of a snapshot."""
    names = ("snapshot show", "snapshot verify", "snapshot copy", "snapshot restore")
    return [reading(good)[name][0] for name in names]


# --- the kinds of bad paths


def _sparse(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(1 << 40)


def _segment(path: Path, good: Path) -> None:
    path.write_bytes(min((good / "aof").glob("*.aof")).read_bytes()[:50])


def _data(path: Path, good: Path) -> None:
    shutil.copy(good / "checkpoint" / "data.mdb", path)


# The kinds of files that lead nowhere. Each function gets the path, where nothing is yet, and a whole store.
# fmt: off
KINDS: dict[str, Callable[[Path, Path], object]] = {
    "empty":         lambda path, good: path.write_bytes(b""),
    "FIFO":          lambda path, good: os.mkfifo(path),
    "sparse":        lambda path, good: _sparse(path),
    "loop of links": lambda path, good: path.symlink_to(path),
    "nothing":       lambda path, good: None,
    "random":        lambda path, good: path.write_bytes(random.Random(3).randbytes(70_000)),
    "text":          lambda path, good: path.write_text("Dear reader,\nno store is here.\n" * 50),
    "cut header":    _segment,
    "data of LMDB":  _data,
    "directory":     lambda path, good: path.mkdir(),
    "broken link":   lambda path, good: path.symlink_to("nowhere"),
    "/dev/zero":     lambda path, good: path.symlink_to("/dev/zero"),
    "/dev/null":     lambda path, good: path.symlink_to("/dev/null"),
    "/dev/full":     lambda path, good: path.symlink_to("/dev/full"),
}
# fmt: on


PLACES = (
    "STORE",
    "LOCK",
    "aof",
    "aof/DURABLE",
    "aof/FIRST",
    "aof/LAST",
    "checkpoint",
    "checkpoint/data.mdb",
    "snapshots",
    "snapshots/KEPT",
    "snapshots/KEPT/manifest.json",
    "snapshots/KEPT/data.mdb",
    "quarantine",
    "RESTORING",
)


def place(root: Path, name: str) -> Path:
    """The path of a name of PLACES in a store."""
    found = sorted((root / "aof").glob("*.aof"))
    name = name.replace("FIRST", found[0].name).replace("LAST", found[-1].name)
    return root / name.replace("KEPT", snapshot_of(root).name)


def bytes_spoiled(path: Path, rng: random.Random) -> str:
    """Cut a file short, flip a bit, or make it longer. Returns the words for it."""
    data = bytearray(path.read_bytes())
    at = rng.randrange(len(data))
    way = rng.choice(("cut", "flip", "grow"))
    if way == "cut":
        del data[at:]
    elif way == "flip":
        data[at] ^= 1 << rng.randrange(8)
    else:
        data += rng.randbytes(rng.choice((1, 80, 5000)))
    path.write_bytes(data)
    return f"{way} at {at}"


def clear(path: Path) -> None:
    """Remove what is there."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def listing(root: Path) -> list[tuple[str, int, int, int]]:
    """Names, kinds, sizes and times of all that lies below, but for LMDB's table of readers."""
    found = []
    for path in sorted(root.rglob("*")):
        if path.name != "lock.mdb":
            facts = path.lstat()
            changed = facts.st_mtime_ns if path.is_file() else 0
            found.append((str(path.relative_to(root)), facts.st_mode, facts.st_size, changed))
    return found
