"""Programs that run on a terminal."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import shutil
import struct
import subprocess
import sys
import termios
import time
from pathlib import Path
from typing import Final

from tests.until import PATIENCE_S


def on_a_terminal(*args: object, width: int = 200) -> tuple[str, str]:
    """The output of the command line to a terminal on standard output, and to one on standard error."""
    said = []
    ends = [pty.openpty(), pty.openpty()]
    script = (
        f"import sys; sys.path[:0] = {sys.path!r}\n"
        f"from tidelog.tools import cli; sys.exit(cli.run({[str(arg) for arg in args]!r}))"
    )
    child = subprocess.Popen(
        [sys.executable, "-c", script],
        stdout=ends[0][1],
        stderr=ends[1][1],
        env={**os.environ, "TERM": "xterm", "COLUMNS": str(width)},
    )
    assert child.wait(120) == 0
    for master, slave in ends:
        os.close(slave)
        parts = []
        try:
            while part := os.read(master, 65536):
                parts.append(part)
        except OSError:
            pass  # a terminal whose other side is closed reads as an error
        os.close(master)
        said.append(b"".join(parts).decode())
    return said[0], said[1]


# The key Ctrl-T shows the line as it stands. The shell takes keys one after the other, so it comes behind a completion.
_SETUP: Final = {
    "bash": r"""
bind 'set bell-style none'
bind 'set page-completions off'
bind 'set completion-query-items 0'
bind -x '"\C-t": printf "\n<<%s>>\n" "$READLINE_LINE"'
PS1='ready> '
""",
    "zsh": r"""
unsetopt beep
autoload -Uz compinit && compinit -u -D
show() { print; print -r -- "<<$BUFFER>>" }
zle -N show && bindkey '^T' show
PS1='ready> '
""",
}


class InteractiveShell:
    """A shell on a terminal, which ran `setup` before its first prompt. `folder` has its files. End it with `close`."""

    def __init__(self, name: str, folder: Path, setup: str, **environment: str) -> None:
        self.name = name
        program = shutil.which(name)
        assert program is not None, f"install {name}: .ci/prepare shells"
        folder.mkdir()
        start = folder / ".zshrc"
        start.write_text(_SETUP[name] + setup + "\n")
        options = ["--rcfile", str(start)] if name == "bash" else ["-d"]
        self._master, slave = pty.openpty()
        # wide: a line that is folded would be drawn in parts
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 50, 1000, 0, 0))
        self._child = subprocess.Popen(
            [program, *options, "-i"],
            stdin=slave,
            stdout=slave,
            stderr=slave,
            env={
                **os.environ,
                **{"TERM": "xterm", "INPUTRC": os.devnull, "ZDOTDIR": str(folder)},
                **environment,
            },
            start_new_session=True,
        )
        os.close(slave)
        self.said = ""
        self._until("ready> ")

    def completed(self, line: str, tabs: int = 1) -> str:
        """The line after it was typed, Tab was pressed, and the shell has answered."""
        self.said = ""
        self._type(line + "\t" * tabs + "\x14")
        found = self._until("<<(.*?)>>")
        self._type("\x15")  # Ctrl-U empties the line
        return found[1]

    def _type(self, keys: str) -> None:
        os.write(self._master, keys.encode())

    def _until(self, pattern: str) -> re.Match[str]:
        """Read on until the shell has drawn this. `said` is all that it drew."""
        until = time.monotonic() + PATIENCE_S
        while (found := re.search(pattern, self.said)) is None:
            ready, _, _ = select.select([self._master], [], [], max(0, until - time.monotonic()))
            assert ready, f"the shell does not answer; it said {self.said!r}"
            self.said += os.read(self._master, 65536).decode(errors="replace")
        return found

    def close(self) -> None:
        self._child.kill()
        self._child.wait(PATIENCE_S)
        os.close(self._master)
