"""The command line of the gate: `make mutants`."""

from __future__ import annotations

import argparse
import sys
from typing import Final

from tests.mutants import promises
from tests.mutants.gate import chosen, run
from tests.mutants.listed import MUTANTS
from tests.turns import SHARES, share_of, this_turn

STRIDE: Final = 2  # that of the crash bench is 1
DESCRIPTION: Final = "Plant each mutant by itself, and see that a check it names catches it."


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=DESCRIPTION)
    parser.add_argument(
        "patterns", nargs="*", metavar="PATTERN", help="of names, as in `log/*`; default: all"
    )
    parser.add_argument(
        "--jobs", type=int, default=2, help="mutants tried at the same time (default 2)"
    )
    parser.add_argument(
        "--unnamed", action="store_true", help="after a miss, look for checks that are not named"
    )
    parser.add_argument(
        "--list", action="store_true", help="print names, files and promises, and run nothing"
    )
    parser.add_argument(
        "--promises",
        action="store_true",
        help="add the promises of all mutants to the committed list, and run nothing",
    )
    parser.add_argument(
        "--by-turns",
        action="store_true",
        help=f"try one of {SHARES} shares of them; the number of commits decides which",
    )
    args = parser.parse_args()
    if args.promises:
        print(f"{promises.add(MUTANTS)} promises")
        return 0
    mutants = chosen(MUTANTS, args.patterns)
    if args.by_turns:
        share = share_of(this_turn(), STRIDE)
        print(f"share {share} of {SHARES} of the mutants")
        mutants = mutants[share - 1 :: SHARES]
    if not mutants:
        print(
            f"no mutant has a name like {' or '.join(args.patterns)}; --list shows all names",
            file=sys.stderr,
        )
        return 2
    if args.list:
        for mutant in mutants:
            print(f"{mutant.name:32} {mutant.file:28} {mutant.promise}")
        return 0
    return 0 if run(mutants, lambda line: print(line, flush=True), args.jobs, args.unnamed) else 1


if __name__ == "__main__":
    sys.exit(main())
