"""The gate itself: its list fits the code, its hook changes a module in children, and a miss is called a miss."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.mutants import gate
from tests.mutants.gate import ROOT, SITE, Ended, Verdict, chosen, judge, problems, try_mutant
from tests.mutants.listed import MUTANTS
from tests.mutants.mutant import Mutant

from tidelog.tools.crash.site import sitecustomize

CRC = Mutant(
    "crc/wrong",
    "engine/crc32c.py",
    "IMPLEMENTATION, crc32c_of, crc32c_after = _choose()\n",
    "IMPLEMENTATION, crc32c_of, crc32c_after = _choose()\n\n\ndef crc32c_of(data):\n    return 7\n",
    ("tests/mutants/sample.py",),
    "A checksum is that of its bytes.",
)
NOTHING = CRC._replace(name="crc/nothing", replacement=CRC.anchor + "\n")
ASK = "from tidelog.engine.crc32c import crc32c_of; print(crc32c_of(b'123456789'))"


def child(program: str, mutant: Mutant, mark: Path) -> str:
    change = {"file": mutant.file, "anchor": mutant.anchor, "replacement": mutant.replacement}
    env = {
        **os.environ,
        sitecustomize.CHANGE: json.dumps(change),
        sitecustomize.MARK: str(mark),
        "PYTHONPATH": str(SITE),
    }
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, env=env, cwd=ROOT, capture_output=True, text=True)
    return done.stdout.strip() or done.stderr


def test_every_mutant_of_the_list_fits_the_code() -> None:
    assert problems(MUTANTS) == []


def test_two_names_of_one_fault_are_told() -> None:
    again = CRC._replace(name="crc/again")
    assert problems([CRC, again]) == ["crc/again: it is the same change as crc/wrong"]
    # The anchor and the replacement have more of the line above, and the source becomes the same.
    above = "so this saves two Python calls per frame.\n"
    same = CRC._replace(
        name="crc/longer", anchor=above + CRC.anchor, replacement=above + CRC.replacement
    )
    assert problems([CRC, same]) == ["crc/longer: it is the same change as crc/wrong"]
    assert problems([CRC, CRC._replace(name="crash/wrong"), NOTHING]) == []


def test_there_are_enough_and_each_says_what_it_breaks() -> None:
    assert len(MUTANTS) >= 50
    for mutant in MUTANTS:
        assert mutant.promise.endswith(".") and mutant.anchor != mutant.replacement, mutant.name


def test_the_change_is_in_the_process_and_in_its_children(tmp_path: Path) -> None:
    plain = subprocess.run([sys.executable, "-c", ASK], capture_output=True, text=True, cwd=ROOT)
    assert int(plain.stdout) == 0xE3069283
    source = (ROOT / CRC.file).read_bytes()
    mark = tmp_path / "mark"
    assert child(ASK, CRC, mark) == "7"
    again = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {ASK!r}])"
    assert child(again, CRC, mark) == "7"
    assert mark.read_bytes() == b"xx"  # once by each process that loaded the module
    assert (ROOT / CRC.file).read_bytes() == source
    # No cached bytecode of the changed module was left behind.
    plain = subprocess.run([sys.executable, "-c", ASK], capture_output=True, text=True, cwd=ROOT)
    assert int(plain.stdout) == 0xE3069283


def test_a_module_that_is_not_loaded_is_not_marked(tmp_path: Path) -> None:
    assert child("print('done')", CRC, tmp_path / "mark") == "done"
    assert not (tmp_path / "mark").exists()


def test_an_anchor_that_is_missing_is_an_error_of_the_import(tmp_path: Path) -> None:
    told = child(ASK, CRC._replace(anchor="no such text"), tmp_path / "mark")
    assert "must be there exactly once and is there 0 times" in told


@pytest.mark.parametrize(
    "mutant, text",
    [
        (CRC._replace(anchor="no such text"), "there 0 times"),
        (CRC._replace(anchor="return"), "exactly once and is there"),
        (CRC._replace(replacement="def ("), "does not compile"),
        (CRC._replace(file="engine/missing.py"), "engine/missing.py is missing"),
        (CRC._replace(checks=()), "names no check"),
        (CRC._replace(checks=("tests/none.py",)), "file that is missing"),
        (CRC._replace(checks=("tests/mutants/sample.py::test_none",)), "test that is missing"),
    ],
)
def test_what_is_wrong_with_a_mutant_is_named(mutant: Mutant, text: str) -> None:
    (problem,) = problems([mutant])
    assert problem.startswith("crc/wrong: ") and text in problem


def test_a_name_stands_in_the_list_once() -> None:
    assert problems([CRC, CRC]) == ["crc/wrong: the name stands there twice"]


def test_a_mutant_is_caught_and_one_that_changes_nothing_is_missed(tmp_path: Path) -> None:
    caught = try_mutant(CRC, tmp_path)
    assert (caught.verdict, caught.by) == (
        Verdict.CAUGHT,
        "tests/mutants/sample.py::test_the_check_value",
    )
    assert try_mutant(NOTHING, tmp_path).verdict is Verdict.MISSED
    one = ("tests/mutants/sample.py::test_nothing",)
    assert try_mutant(CRC._replace(checks=one), tmp_path).verdict is Verdict.MISSED
    found = try_mutant(CRC._replace(checks=one), tmp_path, unnamed=True)
    assert (found.verdict, found.by) == (Verdict.UNNAMED, caught.by)
    line = "from __future__ import annotations\n"
    other = CRC._replace(
        name="digest/unloaded", file="tools/digest.py", anchor=line, replacement=line + "\n"
    )
    assert try_mutant(other, tmp_path).verdict is Verdict.UNLOADED


@pytest.mark.parametrize(
    "ended, verdict",
    [
        (Ended(1, "FAILED tests/a.py::test_b - assert 0", True), Verdict.CAUGHT),
        (Ended(1, "ERROR tests/a.py::test_b - in a fixture", True), Verdict.BROKEN),
        (Ended(1, "FAILED tests/a.py::test_b - assert 0", False), Verdict.BROKEN),
        (Ended(0, "1 passed", True), Verdict.MISSED),
        (Ended(0, "1 passed", False), Verdict.UNLOADED),
        (Ended(None, "", True), Verdict.HUNG),
        (Ended(2, "ERROR while it was imported", True), Verdict.BROKEN),
        (Ended(4, "no such test", True), Verdict.BROKEN),
        (Ended(-11, "", True), Verdict.BROKEN),
    ],
)
def test_verdicts(ended: Ended, verdict: Verdict) -> None:
    assert judge(ended)[0] is verdict


def test_a_gate_with_a_miss_fails_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[str] = []
    assert not gate.run([CRC._replace(anchor="none")], told.append)
    assert told == [
        f"crc/wrong: {CRC.file}: the anchor must be there exactly once and is there 0 times"
    ]
    monkeypatch.setattr(gate, "LIMIT_S", 60.0)
    told.clear()
    assert not gate.run([CRC, NOTHING], told.append)
    assert told[-1].startswith("1 of 2 mutants caught")
    assert any(line.startswith("missed") and "crc/nothing" in line for line in told)


def test_mutants_are_chosen_by_name() -> None:
    assert chosen([CRC, NOTHING], []) == [CRC, NOTHING]
    assert chosen([CRC, NOTHING], ["*/wrong"]) == [CRC]
