"""A new PostgreSQL server on loopback. It refuses to run as root, so then it is a process of the user `postgres`."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from typing import Any, Final

from bench.servers import free_port

DEBIAN: Final = Path("/usr/lib/postgresql")
USER: Final = "bench"  # and the name of its database


def programs() -> Path:
    """The directory of `initdb` and `pg_ctl`. Raises FileNotFoundError if PostgreSQL is not installed."""
    found = shutil.which("initdb")
    if found is not None:
        return Path(found).resolve().parent
    for version in sorted(DEBIAN.glob("*/bin/initdb"), reverse=True):
        return version.parent
    raise FileNotFoundError(
        "PostgreSQL is not installed: neither PATH nor Debian's place has initdb"
    )


class Postgres:
    """The server, from its start until `close`. Its directory must not be that of another one."""

    def __init__(self, directory: Path) -> None:
        self._programs, self.port = programs(), free_port()
        self._as: dict[str, Any] = {}
        if os.geteuid() == 0:
            self._as = {"user": "postgres", "group": "postgres", "extra_groups": []}
            directory.parent.chmod(0o711)  # the run's, which only root may enter
            shutil.chown(directory, "postgres", "postgres")
        self._data = directory / "data"
        self._run("initdb", "-A", "trust", "-U", USER)
        options = f"-p {self.port} -c listen_addresses=127.0.0.1 -c unix_socket_directories=''"
        self._run("pg_ctl", "-w", "-l", str(directory / "log"), "-o", options, "start")

    def fresh(self) -> None:
        """Make the database anew. Nobody may be connected to it."""
        where = ("-h", "127.0.0.1", "-p", str(self.port), "-U", USER)
        for program in ("dropdb --if-exists --force", "createdb"):
            name, *words = program.split()
            self._called(name, *where, *words, "--maintenance-db=postgres", USER)

    def close(self) -> None:
        self._run("pg_ctl", "-w", "-m", "immediate", "stop")

    def _run(self, program: str, *words: str) -> None:
        self._called(program, "-D", str(self._data), *words)

    def _called(self, program: str, *words: str) -> None:
        # pg_ctl's server keeps standard output, so nobody may wait for its end
        subprocess.run(
            [self._programs / program, *words],
            cwd=self._data.parent,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            env={**os.environ, "PGOPTIONS": "-c client_min_messages=warning"},
            check=True,
            **self._as,
        )
