"""The gate: plants each mutant by itself, runs the checks that must catch it, and says which did.

    python -m tests.mutants [--jobs N] [--unnamed] [PATTERN...]

First all named checks run without a mutant: a check that fails anyway proves nothing. Then each mutant has one
process, which runs its checks in the order of the list and ends at the first failure. The verdicts:

    caught      a named check failed
    missed      all named checks passed: write the check, or drop the mutant
    unnamed     only another check of the same files failed: name it
    unloaded    no process loaded the changed module, so the checks did not try it
    hung        the checks did not end in LIMIT_S
    broken      the checks could not run: an import error, a wrong name, a crash of the interpreter

Everything but `caught` fails the gate. `--unnamed` looks for unnamed checks after a miss, which costs more.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from enum import Enum
from fnmatch import fnmatch
from pathlib import Path
from typing import Final, NamedTuple

from tests.mutants.mutant import Mutant

from tidelog.tools.crash.site import sitecustomize

ROOT: Final = Path(__file__).parents[2]
SITE: Final = Path(sitecustomize.__file__).parent
LIMIT_S: Final = 120.0
PATIENCE_S: Final = 10.0  # of a test that waits for what a mutant never does
# Plain assertions: tidelog is a plugin of pytest, so pytest would load its modules by a hook of its own.
PYTEST: Final = ("-m", "pytest", "-q", "-x", "--tb=no", "--no-header", "-rfE", "--assert=plain")
FAILED: Final = re.compile(r"^FAILED (\S+)", re.MULTILINE)


class Verdict(Enum):
    CAUGHT = "caught"
    MISSED = "missed"
    UNNAMED = "unnamed"
    UNLOADED = "unloaded"
    HUNG = "hung"
    BROKEN = "broken"


class Result(NamedTuple):
    """The outcome of one mutant. `by` is the check that caught it, or the end of what a broken run printed."""

    mutant: Mutant
    verdict: Verdict
    by: str
    seconds: float


class Ended(NamedTuple):
    """One run of checks. `code` is None if it was ended for taking too long."""

    code: int | None
    printed: str
    planted: bool


def problems(mutants: Sequence[Mutant], root: Path = ROOT) -> list[str]:
    """The faults of a list, found before anything runs: one sentence each, which names the mutant."""
    found = []
    for mutant in mutants:
        found += [f"{mutant.name}: {problem}" for problem in _problems(mutant, root)]
    names = [mutant.name for mutant in mutants]
    found += [
        f"{name}: the name stands there twice"
        for name in sorted(set(names))
        if names.count(name) > 1
    ]
    return found + _twice(mutants, root)


def _twice(mutants: Sequence[Mutant], root: Path) -> list[str]:
    """The mutants that leave the same source as one before them: two names of one fault.

    Those of `crash` repeat faults of other lists on purpose: their check is the crash bench.
    """
    found, seen = [], dict[tuple[str, str], str]()
    for mutant in mutants:
        path = root / mutant.file
        if not path.is_file() or mutant.name.startswith(("crash/", "crash1/")):
            continue
        try:
            source = sitecustomize.changed(path.read_text(), mutant.anchor, mutant.replacement)
        except ValueError:
            continue
        first = seen.setdefault((mutant.file, source), mutant.name)
        if first != mutant.name:
            found.append(f"{mutant.name}: it is the same change as {first}")
    return found


def _problems(mutant: Mutant, root: Path) -> Iterable[str]:
    path = root / mutant.file
    if not path.is_file():
        yield f"{mutant.file} is missing"
        return
    try:
        source = sitecustomize.changed(path.read_text(), mutant.anchor, mutant.replacement)
    except ValueError as error:
        yield f"{mutant.file}: {error}"
    else:
        try:
            compile(source, str(path), "exec", dont_inherit=True)
        except SyntaxError as error:
            yield f"{mutant.file}: the changed source does not compile: {error}"
    if not mutant.checks:
        yield "it names no check"
    for check in mutant.checks:
        file, _, test = check.partition("::")
        name = test.rpartition("::")[2].partition("[")[0]
        if not (root / file).is_file():
            yield f"the check {check} names a file that is missing"
        elif name and f"def {name}(" not in (root / file).read_text():
            yield f"the check {check} names a test that is missing"


def run_checks(
    checks: Sequence[str], mutant: Mutant | None, mark: Path, limit_s: float = LIMIT_S
) -> Ended:
    """Run checks in one process, with a mutant or without. `mark` is a file to be made if it is planted."""
    env = {k: v for k, v in os.environ.items() if not k.startswith("TIDELOG_MUTANT")}
    if mutant is not None:
        change = {"file": mutant.file, "anchor": mutant.anchor, "replacement": mutant.replacement}
        env[sitecustomize.CHANGE] = json.dumps(change)
        env[sitecustomize.MARK] = str(mark)
        env["TEST_PATIENCE_S"] = f"{PATIENCE_S:g}"
        env["PYTHONPATH"] = os.pathsep.join(filter(None, (str(SITE), env.get("PYTHONPATH", ""))))
    # A directory of its own: processes of pytest that clean up the common one at the same time disturb each other.
    with (
        tempfile.TemporaryFile("w+") as printed,
        tempfile.TemporaryDirectory(prefix="m", ignore_cleanup_errors=True) as own,
    ):
        child = subprocess.Popen(
            [sys.executable, *PYTEST, f"--basetemp={own}/t", *checks],
            cwd=ROOT,
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=printed,
            stderr=subprocess.STDOUT,
            start_new_session=True,  # so that its children end with it
        )
        code: int | None
        try:
            code = child.wait(limit_s)
        except subprocess.TimeoutExpired:
            code = None
        finally:
            try:
                os.killpg(child.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
            child.wait()
        printed.seek(0)
        return Ended(code, printed.read(), mark.exists())


def judge(ended: Ended) -> tuple[Verdict, str]:
    """The verdict of one run with a mutant."""
    failed = FAILED.search(ended.printed)
    if ended.code is None:
        return Verdict.HUNG, ""
    if ended.code == 1 and failed is not None and ended.planted:
        return Verdict.CAUGHT, failed[1]
    if ended.code == 0:
        return (Verdict.MISSED if ended.planted else Verdict.UNLOADED), ""
    return Verdict.BROKEN, ended.printed[-1000:].strip()


def try_mutant(mutant: Mutant, directory: Path, unnamed: bool = False) -> Result:
    """Plant one mutant and run its checks; after a miss, if wished, all other checks of their files."""
    started = time.monotonic()
    mark = directory / mutant.name.replace("/", ".")
    verdict, by = judge(run_checks(mutant.checks, mutant, mark))
    if verdict is Verdict.MISSED and unnamed:
        files = list(dict.fromkeys(check.partition("::")[0] for check in mutant.checks))
        if files != list(mutant.checks):
            other, found = judge(run_checks(files, mutant, mark))
            if other is Verdict.CAUGHT:
                verdict, by = Verdict.UNNAMED, found
    return Result(mutant, verdict, by, time.monotonic() - started)


def run(
    mutants: Sequence[Mutant],
    tell: Callable[[str], object],
    jobs: int = 2,
    unnamed: bool = False,
) -> bool:
    """Try all mutants of a list, `jobs` at a time, and tell line by line. Whether every one was caught."""
    started = time.monotonic()
    wrong = problems(mutants)
    for problem in wrong:
        tell(problem)
    if wrong:
        return False
    with tempfile.TemporaryDirectory() as name, ThreadPoolExecutor(jobs) as pool:
        directory = Path(name)
        checks = sorted({check for mutant in mutants for check in mutant.checks})
        parts = [part for part in (checks[at::jobs] for at in range(jobs)) if part]
        for ended in pool.map(
            lambda part: run_checks(part, None, directory / "none", 600.0), parts
        ):
            if ended.code != 0:
                tell(f"without a mutant these checks must pass:\n{ended.printed[-2000:]}")
                return False
        tell(f"{len(checks)} checks pass without a mutant, {time.monotonic() - started:.0f} s")
        results = []
        for result in pool.map(lambda mutant: try_mutant(mutant, directory, unnamed), mutants):
            tell(_line(result))
            results.append(result)
    caught = sum(result.verdict is Verdict.CAUGHT for result in results)
    tell(f"{caught} of {len(results)} mutants caught, {time.monotonic() - started:.0f} s")
    return caught == len(results)


def _line(result: Result) -> str:
    mutant = result.mutant
    line = f"{result.verdict.value:8} {result.seconds:5.1f} s  {mutant.name:32} {result.by}"
    if result.verdict in (Verdict.MISSED, Verdict.UNNAMED):
        line += f"\n{'':19}{mutant.file}: {mutant.promise}"
    return line.rstrip()


def chosen(mutants: Sequence[Mutant], patterns: Sequence[str]) -> list[Mutant]:
    """Those whose names match one of the patterns; all of them if there are no patterns."""
    if not patterns:
        return list(mutants)
    return [m for m in mutants if any(fnmatch(m.name, pattern) for pattern in patterns)]
