"""`tidelog crash --subject`: a program of the user that is found and replayed, what is not run, bad arguments."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import pytest
from tests.tools.conftest import Run

from tidelog.crash.preload import library as libraries
from tidelog.tools import exits

GUIDE = (Path(__file__).parents[2] / "docs/guides/crash.md").read_text()


def of_guide(name: str) -> str:
    """A program in the guide, by its first line."""
    (source,) = re.findall(rf"```python\n(# {re.escape(name)}\n.*?)```", GUIDE, re.DOTALL)
    return str(source)


def test_the_program_of_the_guide_is_found_kept_and_replayed_only_with_its_check(
    tmp_path: Path, run: Run
) -> None:
    words = []
    for name, places in (("shop.py", "{dir}"), ("check.py", "{dir} {told}")):
        (tmp_path / name).write_text(of_guide(name))
        words.append(f"{sys.executable} -S {tmp_path / name} {places}")
    subject, check = words
    done = run(
        *("crash", "--subject", subject, "--check", check, "--seed", "1"),
        *("--minutes", "0", "--keep", tmp_path / "kept", "--json"),
    )
    assert done.code == exits.FAILED, done.err
    said = json.loads(done.out)
    by_fault = {each["fault"]: each for each in said["subjects"]}
    assert by_fault["kill"]["beyond"] == 0 < by_fault["strict"]["beyond"]
    assert said["promises"] == {"program": "what it prints"}
    kept = said["findings"][0]
    shown = run("crash", "replay", kept)
    assert shown.code != exits.OK
    assert f"run only if you name it: --check '{check}'" in shown.err
    shown = run("crash", "replay", kept, "--check", check)
    assert shown.code == exits.FAILED
    assert shown.out.splitlines()[0].startswith(
        "wrong: program, strict: the check ended with 1 and said: lost: order "
    )
    assert shown.out.splitlines()[-1].startswith("now: wrong: the check ended with 1")


# It syncs its file, and not the directory that names it: ext4 and xfs make the name durable all the same.
NAMELESS = """
import os, sys
log = os.open(sys.argv[1] + "/orders", os.O_WRONLY | os.O_CREAT | os.O_DSYNC)
for number in range(3):
    os.write(log, b"order %d" % number + bytes([10]))
    print("order", number, flush=True)
"""


def test_what_counts_is_what_the_model_counts(tmp_path: Path, run: Run) -> None:
    (tmp_path / "shop.py").write_text(NAMELESS)
    (tmp_path / "check.py").write_text(of_guide("check.py"))
    words = (
        *("crash", "--subject", f"{sys.executable} -S {tmp_path / 'shop.py'} {{dir}}"),
        *("--check", f"{sys.executable} -S {tmp_path / 'check.py'} {{dir}} {{told}}"),
        *("--seed", "1", "--minutes", "0", "--keep", tmp_path / "made/before/kept"),
    )
    done = run(*words, "--json")
    said = json.loads(done.out)
    beyond = {each["fault"]: each["beyond"] for each in said["subjects"]}
    assert beyond["ordered"] == beyond["kill"] == 0 < beyond["strict"]
    assert done.code == exits.OK
    assert said["not_counted"] == said["findings"] != []
    done = run(*words, "--model", "strict")
    assert done.code == exits.FAILED
    assert "a note only" not in done.out


def test_a_mismatch_without_a_crash_is_a_finding(tmp_path: Path, run: Run) -> None:
    (tmp_path / "shop.py").write_text(of_guide("shop.py"))
    subject = f"{sys.executable} -S {tmp_path / 'shop.py'} {{dir}}"
    words = ("--seed", "1", "--minutes", "0", "--keep", tmp_path / "kept")
    done = run("crash", "--subject", subject, "--check", "false {dir}", *words)
    assert done.code == exits.FAILED
    assert "wrong: program: the subject fails without any crash" in done.out


def test_the_place_of_findings_is_tried_before_the_run(tmp_path: Path, run: Run) -> None:
    (tmp_path / "file").touch()
    for keep in (tmp_path / "file", tmp_path / "file/kept"):
        done = run("crash", "--layers", "log", "--minutes", "0", "--keep", keep)
        assert done.code == exits.SYSTEM
        assert f"--findings {keep}" in done.err and "name another directory" in done.err


def test_without_a_compiler_nothing_is_run_and_the_reason_is_said(
    tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(libraries, "COMPILERS", ("no-such-compiler",))
    done = run("crash", "--subject", "lmdb-sync", "--keep", tmp_path / "kept")
    assert done.code == exits.SYSTEM
    assert (
        "lmdb-sync: not run: none of the compilers no-such-compiler is here; install one"
        in done.out.splitlines()
    )


def test_a_missing_server_is_not_run(
    tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr("tidelog.tools.crash.others.build", lambda directory, name: directory)
    done = run("crash", "--subject", "redis-server", "--keep", tmp_path / "kept")
    assert done.code == exits.SYSTEM
    assert "redis-everysec: not run: redis-server is not installed" in done.out.splitlines()


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (("--subject", "oracle"), "'oracle' is not one of all, sqlite3, lmdb, redis-server, tidelog"),
        (("--subject", "./shop {dir}"), "a command as --subject needs a --check"),
        (("--subject", "lmdb", "--check", "x {dir}"), "only a command has one"),
        (("--check", "x {dir}"), "--check is for --subject"),
        (("--subject", "no-such-program {dir}", "--check", "x {dir}"), "no-such-program"),
        (("--subject", "true {dir}", "--check", "x"), "name the directory as {dir}"),
    ],
)  # fmt: skip
def test_bad_arguments(tmp_path: Path, run: Run, args: tuple[str, ...], words: str) -> None:
    done = run("crash", *args, "--keep", tmp_path / "kept", "--minutes", "0")
    assert done.code != exits.OK
    assert words in done.err + done.out
    assert not (tmp_path / "kept").exists()
