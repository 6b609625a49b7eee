"""Start: what the `tidelog` command runs first.

The rest of the command line takes most of the start to import. Ctrl-C may come meanwhile, and is answered as later: by
one line and the exit code 130.
"""

from __future__ import annotations

import sys


def main() -> None:
    try:
        # here: an interrupt during the import is handled below
        from tidelog.tools import cli

        cli.main()
    except KeyboardInterrupt:
        if sys.stderr is not None:
            sys.stderr.write("interrupted\n")
        sys.exit(130)  # the value of exits.INTERRUPTED; that module may not be imported yet
