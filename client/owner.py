"""Owner: the process that serves a store for all processes that connect to its path. Started by the first of them.

It is `serve_forever` on `serve.sock` in the store's directory, and wherever tidelog.toml in the directory says. It
ends when nobody was connected for a minute, unless that file says another time. LOCK decides which process it is, so
two that are started at once are one. It is detached: its own session, its parent ends at once, and its messages go to
`serve.log` beside the socket.

Until it is ready, standard output and standard error are a pipe to the process that started it, which so learns why an
owner could not start. `python -m tidelog.client.owner PATH [NAME=VALUE ...]` is its command line.
"""

from __future__ import annotations

import os
import shlex
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from tidelog.aof.layout import SHARED_LOG
from tidelog.client.address import is_served
from tidelog.client.starting import FAILED, FOR_OPERATOR, READY
from tidelog.disk.text_log import open_log_file
from tidelog.server.config import stored
from tidelog.server.config.config import Config, ConfigError
from tidelog.server.config.stored import Stored, by_operator
from tidelog.server.monitoring.logs import Logs
from tidelog.server.serving import serve_forever
from tidelog.store.errors import StoreLocked, TidelogError

IDLE_S: Final = 60  # an owner without clients ends after this time
DEFAULTS: Final = {**stored.DEFAULTS, "idle-exit": IDLE_S}
LOCK_S: Final = 5.0  # how long it waits for an owner that begins or ends
LOOK_S: Final = 0.05  # pause between two looks whether another owner has begun meanwhile


def main(words: Sequence[str]) -> int:
    """Be the owner of the store in `words[0]`. Returns the exit code.

    The other words are options of the server, for a store that has no tidelog.toml.
    """
    root = Path(words[0])
    config = Config()
    config.place(root)
    config.owner = True
    try:
        for name, value in DEFAULTS.items():
            config.assume(name, value)
        if not Stored(root, DEFAULTS).load(config):
            for word in words[1:]:
                name, _, text = word.partition("=")
                config.take(name, text, "")
        if by_operator(root):
            raise StoreLocked(f"{FOR_OPERATOR}: run `tidelog serve {shlex.quote(str(root))}`", None)
        with Logs(config):
            return _serve(root, config)
    except (TidelogError, ConfigError, OSError) as error:
        print(f"{FAILED}{type(error).__name__}: {error}", file=sys.stderr)
        return 1


def _serve(root: Path, config: Config) -> int:
    """Serve the store, once the lock is free, unless another process serves it. Raises StoreLocked if none does."""
    until = time.monotonic() + LOCK_S
    while True:
        try:
            return serve_forever(root, config, ready=lambda _: _go(root), lock_timeout=LOOK_S)
        except StoreLocked:
            if is_served(root):
                # The client connects to that one. If it is killed before, the client starts an owner again.
                _tell()
                return 0
            if time.monotonic() >= until:
                raise


def _go(root: Path) -> None:
    """The owner is ready: tell the process that started it, and write to the log file from now on."""
    _tell()
    with open_log_file(str(root / SHARED_LOG)) as log:
        os.dup2(log.fileno(), 1)
        os.dup2(log.fileno(), 2)


def _tell() -> None:
    try:
        os.write(1, READY)
    except OSError:
        pass  # the client found another owner meanwhile


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
