"""Options that name a time or a length of time, and options that had another name before."""

from __future__ import annotations

from pathlib import Path

import click
import pytest
from tests.tools.conftest import Run
from tests.tools.made import Made
from tests.tools.test_help import COMMANDS

import tidelog
from tidelog.tools import exits
from tidelog.tools.text import age_seconds
from tidelog.tools.times import Duration, Option

HOUR = 3600.0


@pytest.mark.parametrize(
    ("typed", "seconds"),
    [
        *(("30", 30.0), ("1.5", 1.5), ("0", 0.0), ("90s", 90.0), ("15m", 900.0), ("2h", 2 * HOUR)),
        *(("7d", 168 * HOUR), ("1d12h", 36 * HOUR), ("1d0h5m1s", 24 * HOUR + 301)),
    ],
)
def test_durations(typed: str, seconds: float) -> None:
    assert Duration().convert(typed, None, None) == seconds


@pytest.mark.parametrize(
    "typed", ["", "s", "5w", "1.5h", "-5m", "2h1d", "1h 5m", "nan", "inf", "9" * 10 + "d", "soon"]
)
def test_what_is_no_duration(typed: str) -> None:
    with pytest.raises(click.BadParameter, match="in seconds, or as 15m, 2h, 1d12h"):
        Duration().convert(typed, None, None)
    assert age_seconds(typed) is None


def test_every_length_of_time_is_read_by_the_one_parser() -> None:
    """No option that still takes a bare number of seconds, and each says the forms in the same words."""
    for name, command in COMMANDS.items():
        for option in command.params:
            if isinstance(option, click.Option) and not option.hidden:
                assert option.metavar != "SECONDS", (name, option.opts)
                is_one = isinstance(option.type, Duration)
                assert is_one == ("in seconds, or as 15m" in (option.help or "")), name
                assert is_one or not isinstance(option.type, click.FloatRange), (name, option.opts)


def test_former_names_work_and_are_not_shown(run: Run, made: Made, tmp_path: Path) -> None:
    assert run("aof", "dump", made.root, "--limit", 2) == run(
        "aof", "dump", made.root, "--count", 2
    )
    with tidelog.queue(tmp_path / "data", "mails") as queue:
        queue.put(1)
    assert run("queue", "watch", tmp_path / "data", "--count", 1).out.count("mails") == 1
    former = {
        (name, *option.opts, *option.formerly)
        for name, command in COMMANDS.items()
        for option in command.params
        if isinstance(option, Option) and option.formerly
    }
    assert former == {
        ("aof dump", "--count", "--limit"), ("queue watch", "--looks", "--count"),
        ("export", "--changed-since", "--since"), ("demo", "--for", "--seconds"),
        ("demo", "--store", "--keep"), ("crash machine", "--findings", "--keep"),
        ("crash", "--findings", "--keep"),
    }  # fmt: skip
    for name, new, old in former:
        told = run(*name.split(), "--help").out
        assert new in told and f"  {old} " not in told, name


def test_the_minutes_of_crash_are_minutes_still(run: Run, tmp_path: Path) -> None:
    for words in (("--minutes", "0"), ("--for", "0s")):
        done = run("crash", "--layers", "log", *words, "--findings", tmp_path / "found")
        assert done.code in (exits.OK, exits.FAILED), done.err
    assert "--minutes" not in run("crash", "--help").out


def test_one_name_has_one_meaning() -> None:
    """--count is how many are shown, --keep how many are kept, and --since a time."""
    for name, command in COMMANDS.items():
        for option in command.params:
            if isinstance(option, click.Option):
                if {"--count", "--keep"} & {*option.opts}:
                    assert isinstance(option.type, click.IntRange), name
                assert "--limit" not in option.opts, name
                assert "--since" not in option.opts or "time" in (option.help or ""), name
