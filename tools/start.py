"""Start: what the `tidelog` command runs first.

The rest of the command line takes most of the start to import. Ctrl-C may come meanwhile, and is answered as later: by
one line and the exit code 130.

Python takes names on the command line and in directories as the locale says. The command runs in Python's UTF-8 mode
instead, with the processes that it starts: names of keys and queues are UTF-8 in every locale, and names of files any
bytes.
"""

from __future__ import annotations

import os
import sys

UTF8 = "PYTHONUTF8"


def in_utf8() -> None:
    """Begin again in UTF-8 mode, in the same process, unless names are UTF-8 already."""
    if sys.getfilesystemencoding() != "utf-8" and os.environ.get(UTF8) != "1" and sys.executable:
        words = [sys.executable, "-X", "utf8", *sys.orig_argv[1:]]
        os.execve(sys.executable, words, {**os.environ, UTF8: "1"})


def main() -> None:
    try:
        in_utf8()
        # here: an interrupt during the import is handled below
        from tidelog.tools import cli

        cli.main()
    except KeyboardInterrupt:
        if sys.stderr is not None:
            sys.stderr.write("interrupted\n")
        sys.exit(130)  # the value of exits.INTERRUPTED; that module may not be imported yet
