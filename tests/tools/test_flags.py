"""Every flag of the commands that read a log or a state is run once, and all that they print is kept.

expected/flags/ has one file for each command: each line as it is typed, and what it says.
"""

from __future__ import annotations

import re
import shlex
from datetime import UTC, datetime
from pathlib import Path

import click
import pytest
from tests.tools.conftest import Done, Run, expect
from tests.tools.made import T0, Made
from tests.tools.spoiled import leaves

import tidelog
from tidelog.testing import Clock
from tidelog.tools import exits

COMMANDS = dict(leaves())
DAMAGED = "damaged-data"  # the second frame of the last segment is damaged, and was synced
KEPT = "orders-data/snapshots/00000000000000000013"
# fmt: off
LINES: dict[str, tuple[str, ...]] = {
    "aof ls": ("orders-data", "orders-data --scan", "orders-data --json", "orders-data/aof/00000000000000000008.aof"),
    "aof dump": (
        "orders-data --key 'o*' --count 2",
        "orders-data --command XACK --command SET --unit",
        "orders-data --group packers --consumer anna",
        "orders-data --id 1700000003000-0..1700000003000-1",
        "orders-data --from-lsn 3 --to-lsn 4 --json",
        "orders-data --since 1700000002001 --until 1700000003000 --frames",
        "orders-data --from-lsn 12 --to-lsn 12 --hex",
        "orders-data --reverse --count 2",
        "orders-data --from-lsn 2 --to-lsn 2 --format resp",
        "damaged-data --past-damage",
    ),
    "aof stats": (
        "orders-data", "orders-data --by minute --since 1700000000002 --until 1700000003000",
        "orders-data --json", "damaged-data --past-damage",
    ),
    "aof plot": (
        "orders-data -o log.svg",
        "orders-data -o log.svg --force --since 1700000000001 --until 1700000003000 --key 'o*' --group packers",
        "damaged-data --past-damage -o damaged.svg",
    ),
    "aof verify": ("orders-data", "orders-data --no-replay", "damaged-data --json"),
    "aof export": (
        "orders-data --resp --to-lsn 3", "orders-data --resp --target 7.0 --at-lsn 8 -o log.resp --json",
        "orders-data --resp --at-time 1700000000003",
    ),
    "info": ("orders-data", "orders-data --at-lsn 8 --json", "orders-data --at-time 1700000000003"),
    "digest": (
        "orders-data", "orders-data --at-lsn 8 --json", "orders-data --at-time 1700000000003",
    ),
    "cat": (
        "orders-data orders --count 1 --reverse", "orders-data lines --id 1700000003000-1..+ --json",
        "orders-data orders --at-lsn 2 --csv", "orders-data orders --at-time 1700000000003",
        "orders-data balance --db 3 --raw",
    ),
    "verify": ("orders-data", "orders-data --snapshots --json"),
    "repair": (
        "orders-data --cut", "damaged-data", "damaged-data --skip-damaged --json",
        "damaged-data --to mended", "damaged-data --in-place", "damaged-data",
    ),
    "state": (
        "orders-data", "orders-data --at-lsn 8 --full", "orders-data --at-time 1700000000003 --json",
        "orders-data --key 'l*'",
    ),
    "why": ("orders-data orders 1700000000001-0", "orders-data orders 1700000000002-0 --json"),
    "top": (
        "orders-data --once", "orders-data --once --sort length --filter o --count 1",
        "orders-data --json --rates --db 0 --helpers",
    ),
    "diff": (
        "orders-data damaged-data", "orders-data damaged-data --json",
        "--state orders-data@8 orders-data --full", "--state --key 'o*' orders-data@6 orders-data@8",
    ),
    "snapshot create": ("orders-data", "orders-data --json"),
    "snapshot ls": ("orders-data", "orders-data --json"),
    "snapshot show": (f"{KEPT}", f"{KEPT} --count 1", "orders-data/snapshots/latest --json"),
    "snapshot verify": (f"{KEPT}", f"{KEPT} --json"),
    "snapshot copy": (f"{KEPT} copy", f"{KEPT} copy --json"),
    "snapshot restore": (
        f"{KEPT} restored", f"{KEPT} by-lsn --until-lsn 14 --json",
        f"{KEPT} by-time --until-time 1700000005001", f"{KEPT} whole --aof orders-data/aof",
    ),
    "snapshot prune": ("orders-data --keep 0 --dry-run", "orders-data --keep 1 --json", "orders-data --keep 0"),
    "rdb export": (
        "orders-data dump.rdb", "orders-data old.rdb --target 7.0 --at-lsn 8 --json",
        "orders-data older.rdb --at-time 1700000000003",
    ),
    "import": (
        "new dump.rdb", "new-orders dump.rdb --db 0 --key 'o*'", "new-other dump.rdb --dry-run --json",
    ),
}
# Flags of these commands that need a terminal, a server, or Ctrl-C, and the test that has them.
ELSEWHERE = {
    ("aof dump", "--follow"):         "test_aof_dump.py",
    ("aof dump", "--format"):         "test_aof_dump.py",
    ("top", "--every"):               "test_top.py",
    ("import", "--by"):               "../oracle/test_import_live.py",
    ("import", "--follow"):           "../oracle/test_import_live.py",
    ("import", "--until-caught-up"):  "../oracle/test_import_live.py",
    ("import", "--truncate-tail"):    "test_import_aof.py",
    ("snapshot create", "--url"):     "test_snapshot.py",
}
ELSEWHERE_WHOLE = {
    "completion", "config", "console", "crash", "demo", "doctor", "export", "queue", "replica", "report", "serve",
    "worker",
}
# fmt: on


def session(run: Run, name: str) -> str:
    """The lines of a command, each followed by what it says."""
    told = []
    for line in LINES[name]:
        done = run(*name.split(), *shlex.split(line))
        told.append(f"$ tidelog {name} {line}\n{said(done)}")
    return "\n".join(told)


def said(done: Done) -> str:
    code = f"exit code {done.code}\n" if done.code else ""
    out = done.out.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
    out = out.replace("\r", "\\r")
    return f"{out}{done.err}{code}"


def unlike(text: str, root: Path) -> str:
    """`text` without what each run has its own of: random numbers, and the time of the repair."""
    text = re.sub(r'"uuid": "[0-9a-f]{32}"', '"uuid": "UUID"', text)
    text = re.sub(r"repair\.\d{13}", "repair.TIME", text)
    return text.replace(f"{root.parent}/", "")


def unlike_now(text: str) -> str:
    """`text` without times of now and ages counted from now: `top` shows the present, a snapshot when it was made."""
    text = re.sub(r"\b\d+d\d\dh", "AGE", text)
    text = re.sub(r"\b20(2[4-9]|[3-9]\d)-\d\d-\d\dT[\d:.]+Z", "TIME", text)
    text = re.sub(r'"created_ms": \d+', '"created_ms": MS', text)
    return re.sub(r'"(time|idle)_ms": \d+', r'"\1_ms": MS', text)


@pytest.fixture
def place(made: Made, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory with both stores and a dump; it is the current one."""
    monkeypatch.setattr("tidelog.tools.top.command.RATE_SECONDS", 0.01)
    monkeypatch.chdir(made.root.parent)
    damaged = Made(Path(DAMAGED))
    damaged.segments, damaged.offsets, damaged.lsn = made.segments, made.offsets, made.lsn
    damaged.write()
    damaged.flip(made.offsets[1] + 55)
    damaged.promise(made.lsn - 1, incarnation=0xB2)
    return made.root


def snapshot_and_more(run: Run) -> None:
    """A snapshot of the store, and two records behind it."""
    assert run("snapshot", "create", "orders-data").code == exits.OK
    with tidelog.open(
        "orders-data", fsync="no", clock=Clock(datetime.fromtimestamp(T0 // 1000 + 5, UTC))
    ) as db:
        db.xadd("orders", {"item": "milk"}, id=f"{T0 + 5000}-0")


@pytest.mark.parametrize("name", LINES)
def test_what_a_command_prints(run: Run, place: Path, name: str) -> None:
    if name.endswith("import"):
        assert run("rdb", "export", "orders-data", "dump.rdb").code == exits.OK
    if name.startswith("snapshot") and name != "snapshot create":
        snapshot_and_more(run)
    told = unlike(session(run, name), place)
    if name == "top" or name.startswith("snapshot"):
        told = unlike_now(told)
    expect(f"flags/{name.replace(' ', '-')}.txt", told, place)


def test_every_command_is_there() -> None:
    """Queues, servers, workers, exports, benches and advice have their flags and outputs in tests of their own."""
    found = {name for name in COMMANDS if name.split()[0] not in ELSEWHERE_WHOLE}
    assert {*LINES} == found


@pytest.mark.parametrize("name", LINES)
def test_every_flag_is_there(name: str) -> None:
    used = {word for line in LINES[name] for word in shlex.split(line) if word.startswith("-")}
    flags = {
        param.opts[0]: {*param.opts}
        for param in COMMANDS[name].params
        if isinstance(param, click.Option)
    }
    missing = {flag for flag, names in flags.items() if not names & used}
    assert missing == {flag for command, flag in ELSEWHERE if command == name} - used


@pytest.mark.parametrize("command, flag", ELSEWHERE)
def test_a_flag_that_is_elsewhere(command: str, flag: str) -> None:
    text = (Path(__file__).parent / ELSEWHERE[command, flag]).read_text()
    assert f'"{flag}"' in text, "no test uses it there"
