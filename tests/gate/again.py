"""A failure is tried once more, alone: a second pytest process runs the tests that failed in the first, one by one.

    python -m pytest -n 2 ... --gate-report FILE      its status does not count
    python -m tests.gate.again FILE                   its status is the verdict: 0 or 1

A test that fails again fails the gate. One that passes is unsteady: it is printed in the last lines, and kept for
`make unsteady` (tests/gate/unsteady.py). More than five of them in one run fail the gate, and so does one that stands
in tests/UNSTEADY.md already.

Nothing is tried again if the first run was not whole (tests/gate/report.py), if more tests failed than a busy machine
explains, or if a strict test (tests/gate/strict.txt) failed by anything else than a wait that ran out.

The second run starts from a cache of its own. `--last-failed` of the first run's cache would also run tests that
failed in an earlier run and were not chosen in this one.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from tests.gate import unsteady
from tests.gate.report import Failed, Report, read
from tests.gate.strict import is_strict
from tests.gate.unsteady import MOST, Unsteady

AGAIN: Final = ("-q", "-n", "0", "--last-failed", "--last-failed-no-failures", "none")
# More failures than this have one cause, which a second run only shows again, one minute of patience after the other.
TRIED_MOST: Final = 20


class Refused(Exception):
    """Why a run cannot be judged, or may not be tried again."""


def again(path: Path) -> bool:
    """Whether the gate holds after the run of which `path` is the report. Removes the report."""
    try:
        first = _taken(path)
        if not first.failed:
            print(f"{first.passed} tests passed, {first.finished - first.passed} were skipped")
            return True
        for failed in first.failed:
            print(f"failed at first: {failed.test} ({', '.join(failed.phases)})")
        _may_be_tried_again(first.failed)
        second = _tried(first.failed)
    except Refused as reason:
        print(f"the gate fails: {reason}")
        return False
    return _verdict(first.failed, {failed.test for failed in second.failed})


def _taken(path: Path) -> Report:
    """The report of a run that was whole. Raises Refused. It is removed, so that no later run is judged by it."""
    try:
        report = read(path)
    except FileNotFoundError:
        raise Refused(f"pytest ended without a report ({path})") from None
    except (ValueError, TypeError, KeyError) as error:
        raise Refused(f"the report {path} cannot be read: {error}") from None
    path.unlink()
    if report.broken:
        raise Refused("the run was not whole: " + "; ".join(report.broken))
    return report


def _may_be_tried_again(failed: Sequence[Failed]) -> None:
    """Raises Refused."""
    strict = [
        each.test
        for each in failed
        if is_strict(each.test.partition("::")[0]) and not each.waits_only
    ]
    if strict:
        raise Refused("these may not fail even once: " + ", ".join(strict))
    if len(failed) > TRIED_MOST:
        raise Refused(f"{len(failed)} tests failed, and more than {TRIED_MOST} are not tried again")


def _tried(failed: Sequence[Failed]) -> Report:
    """The report of the second run. Raises Refused if a test was not tried."""
    with tempfile.TemporaryDirectory() as name:
        cache = Path(name)
        path = cache / "report.json"
        chosen = cache / "v" / "cache" / "lastfailed"
        chosen.parent.mkdir(parents=True)
        chosen.write_text(json.dumps({each.test: True for each in failed}))
        files = dict.fromkeys(each.test.partition("::")[0] for each in failed)
        words = (*AGAIN, "-o", f"cache_dir={cache}", "--gate-report", str(path), *files)
        print(f"{len(failed)} tests are tried again, alone", flush=True)
        subprocess.run([sys.executable, "-m", "pytest", *words], stdin=subprocess.DEVNULL)
        second = _taken(path)
    tried = second.passed + len(second.failed)
    if tried != len(failed):
        raise Refused(f"only {tried} of {len(failed)} tests were tried again")
    return second


def _verdict(failed: Sequence[Failed], failed_again: set[str]) -> bool:
    run, date, known = unsteady.this_run(), time.strftime("%Y-%m-%d"), unsteady.listed()
    found = [
        Unsteady(each.test, each.seed, each.seconds, run, date)
        for each in failed
        if each.test not in failed_again
    ]
    unsteady.keep(found)
    for each in found:
        print(f"unsteady: {each}")
    reasons = [f"{test} failed again" for test in sorted(failed_again)]
    reasons += [
        f"{each.test} is unsteady again and stands in {unsteady.LISTED}"
        for each in found
        if each.test in known
    ]
    count = sum(each.run == run for each in unsteady.seen())
    if count > MOST:
        reasons.append(f"{count} tests were unsteady in one run, and {MOST} may be")
    for reason in reasons:
        print(f"the gate fails: {reason}")
    return not reasons


def main() -> int:
    if len(sys.argv) != 2:
        print("usage: python -m tests.gate.again REPORT", file=sys.stderr)
        return 2
    return 0 if again(Path(sys.argv[1])) else 1


if __name__ == "__main__":
    sys.exit(main())
