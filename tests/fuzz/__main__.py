"""The command line of the fuzzers: `make fuzz`."""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections import Counter
from contextlib import nullcontext
from pathlib import Path
from typing import Final

from tests.fuzz.coverage import Covered, Tracing
from tests.fuzz.kinds import KINDS, STATES, Found, bounded, fuzz

ROOT: Final = Path(__file__).parents[2]
READERS: Final = (
    *sorted((ROOT / "engine" / "rdb").glob("*.py")),
    *sorted((ROOT / "aof" / "reading").glob("*.py")),
    *(ROOT / "aof" / name for name in ("frame.py", "segment.py", "durable.py")),
    *(
        ROOT / "snapshot" / "rows" / name
        for name in ("datafile.py", "treepage.py", "structure.py", "rowfile.py")
    ),
    ROOT / "snapshot" / "manifest.py",
    *(ROOT / "tools" / "importing" / name for name in ("from_aof.py", "resp.py", "replayed.py")),
)


def show(found: list[Covered]) -> None:
    """The lines that no input reached, and the share of each folder."""
    lines: Counter[str] = Counter()
    ran: Counter[str] = Counter()
    for each in found:
        if each.lines:
            print(each.text(ROOT))
        folder = str(each.path.parent.relative_to(ROOT))
        lines[folder] += each.lines
        ran[folder] += each.lines - len(each.missed)
    for folder, count in lines.items():
        print(f"{folder}: {100 * ran[folder] / count:.1f}% of {count} lines")


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.fuzz",
        description="Change inputs at random, and see that each is taken or refused.",
    )
    parser.add_argument("kinds", nargs="*", metavar="KIND", help=f"default: {' '.join(KINDS)}")
    parser.add_argument("--inputs", type=int, default=2000, help="of each kind (default 2000)")
    parser.add_argument("--seed", type=int, default=1, help="of the inputs (default 1)")
    parser.add_argument(
        "--states", type=int, default=STATES, help=f"that are changed (default {STATES})"
    )
    parser.add_argument("--input", type=int, help="try only the input with this number")
    parser.add_argument(
        "--coverage", action="store_true", help="show the lines of the readers that did not run"
    )
    args = parser.parse_args()
    unknown = [kind for kind in args.kinds if kind not in KINDS]
    if unknown:
        print(f"there is no kind {unknown[0]}; the kinds are {' '.join(KINDS)}", file=sys.stderr)
        return 2
    numbers = range(args.inputs) if args.input is None else range(args.input, args.input + 1)
    tracing = Tracing(READERS)
    failed = False
    with tempfile.TemporaryDirectory(prefix="fuzz-") as folder, bounded():
        for kind in args.kinds or KINDS:
            try:
                with tracing.on() if args.coverage else nullcontext():
                    outcomes = fuzz(kind, args.seed, numbers, Path(folder) / kind, args.states)
            except Found as error:
                print(f"{kind}: {error}", file=sys.stderr)
                if args.input is not None:
                    raise
                failed = True
            else:
                told = ", ".join(
                    f"{count:,} {outcome}" for outcome, count in sorted(outcomes.items())
                )
                print(f"{kind}: {told}", flush=True)
    if args.coverage:
        show(tracing.covered())
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
