"""Stored: how a store is served, as the file tidelog.toml in its directory says it.

    format = 1                           of this file; may be absent
    port = 6379                          the options of server/config/options.py, as in every configuration file
    requirepass = { env = "ORDERS_PASSWORD" }
    users = ["user ann on #5e88... ~orders* +@all"]

`tidelog serve` reads it, and so does an owner that a client started. It differs from a file of `serve --config`:

* An absent `port` means none, and an absent `appendfsync` means always.
* It belongs to the store's user and nobody else may read it. It may be a link to such a file.
* A password is the name of a variable or of a file. Users have hashes.
* With TCP, TLS, users or followers, no client starts an owner, unless `started = "by-clients"`.
* Paths are absolute, since those who read it have different working directories.

It is no part of the data: no snapshot, copy or follower gets it.
"""

from __future__ import annotations

import os
import pwd
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from tidelog.aof import identity, lock
from tidelog.disk import private, recipe
from tidelog.disk.real import RealDisk
from tidelog.disk.turn import Turn, take_turn
from tidelog.server.config import file as config_file
from tidelog.server.config.config import Config, ConfigError
from tidelog.server.config.kinds import FileName, Secret
from tidelog.server.config.options import OPTIONS, USERS

NAME: Final = identity.SETTINGS
FORMAT: Final = 1
BYTES_MAX: Final = 1 << 20
TURN_S: Final = 5.0  # how long a change waits for another one
LOOK_S: Final = 0.01  # between two looks whether it has ended
DEFAULTS: Final[Mapping[str, Any]] = {"port": 0, "appendfsync": "always"}
# A store with one of these is not served by a process that a client starts, unless the file says so.
BY_OPERATOR: Final = (
    *("port", "tls-port", USERS, "replicaof", "min-replicas-to-write", "replicate-before-reply"),
)
_FORMAT_KEY: Final = "format"


class Stored:
    """The file of one store.

    path        where it is, perhaps a link
    defaults    values of the options that it does not name, where they are other than usual
    """

    def __init__(self, root: Path, defaults: Mapping[str, Any] = DEFAULTS) -> None:
        self.path = root / NAME
        self.defaults = defaults
        self._root = root

    def text(self) -> bytes | None:
        """Its content, None if there is none. Raises ConfigError if it cannot be read, or others could read it, too."""
        try:
            found = private.read(self.path, BYTES_MAX + 1)
        except OSError as error:
            raise ConfigError(f"{self.path}: {error.strerror or error}") from error
        if found is None:
            return None
        user = self._user()
        if found.uid != user:
            raise ConfigError(
                f"{self.path} belongs to {_name_of(found.uid)}, and the store to {_name_of(user)}: give it to that "
                f"user, with the mode 600"
            )
        if found.mode & 0o077:
            raise ConfigError(
                f"{self.path} has the mode {found.mode:o}, so that others can read it: run `chmod 600` for it"
            )
        if len(found.data) > BYTES_MAX:
            raise ConfigError(f"{self.path} is longer than {BYTES_MAX} bytes")
        return found.data

    def load(self, config: Config) -> bool:
        """Apply the file to `config`, which rewrites it from now on. False if there is none. Raises ConfigError."""
        config.stored = self
        data = self.text()
        if data is None:
            return False
        found, lines = checked(self.path, data)
        for name, value in self.defaults.items():
            config.assume(name, value)
        config.apply(found, lines, self.path)
        config.file = self.path
        config.remembered = True
        return True

    def update(self, change: Callable[[bytes], str]) -> None:
        """Replace the text by what `change` makes of it, atomically and durably; one process at a time.

        Raises ConfigError, if the new text would not be read, too; OSError; and what `change` raises.
        """
        if os.geteuid() != self._user():
            raise ConfigError(
                f"{self.path} belongs to {_name_of(self._user())}, who alone can change it"
            )
        turn = self._turn()
        try:
            data = change(self.text() or b"").encode()
            checked(self.path, data)
            disk = RealDisk()
            if not disk.exists(self._root):
                recipe.make_directory(disk, self._root)
            path = self.path.resolve()  # the file behind a link is replaced, and not the link
            beside = path.with_name(path.name + recipe.BESIDE)
            if disk.exists(beside):
                disk.unlink(beside)  # it might have another mode
            recipe.publish(disk, path, data)
        finally:
            turn.close()

    def remove(self) -> None:
        """Remove the file durably. Raises OSError."""
        recipe.remove(RealDisk(), self.path)

    def _turn(self) -> Turn:
        until = time.monotonic() + TURN_S
        while (turn := take_turn(self._root)) is None:
            if time.monotonic() >= until:
                raise ConfigError(f"{self.path} is being changed by another process; try again")
            time.sleep(LOOK_S)
        return turn

    def _user(self) -> int:
        """The user whose store it is, or will be."""
        found = private.user_of(self._root / lock.NAME)
        return os.geteuid() if found is None else found


def checked(path: Path, data: bytes) -> tuple[dict[str, Any], dict[str, int]]:
    """The options and users in the text of such a file, with their lines. Raises ConfigError.

    The places of passwords are not read: the variables of this process may be others than those of a server.
    """
    if data and not data.endswith(b"\n"):
        raise ConfigError(
            f"{path}: its last line has no end, so it may be half written; end it with a line feed if it is whole"
        )
    try:
        found, lines = config_file.read(data)
    except config_file.Malformed as error:
        raise ConfigError(f"{path}{error}") from error
    number = found.pop(_FORMAT_KEY, FORMAT)
    if type(number) is not int or number < 1:
        raise ConfigError(f"{path}: format must be {FORMAT}")
    if number > FORMAT:
        raise ConfigError(
            f"{path} is of a later version of tidelog: it has format {number}, and this version reads format {FORMAT}"
        )
    held = set()
    for name, value in found.items():
        where = f"{path}, line {lines[name]}: " if name in lines else f"{path}: "
        option = OPTIONS.get(name)
        if option is not None and isinstance(option.kind, Secret):
            if isinstance(value, str) and value:
                raise ConfigError(where + config_file.IN_CLEAR.format(name=name))
            if isinstance(value, dict):
                held.add(name)
                if not option.kind.names_a_place(value):
                    raise ConfigError(f"{where}{name} must be {option.kind.allowed}")
                value = value.get("file", "/")
        if option is not None and isinstance(option.kind, FileName | Secret):
            if isinstance(value, str) and value and not os.path.isabs(value):
                raise ConfigError(f"{where}{name} must be an absolute path, not {value!r}")
        if name == USERS and isinstance(value, list):
            for line in value:
                _check_user(line, where)
    Config().apply({name: value for name, value in found.items() if name not in held}, lines, path)
    return found, lines


def by_operator(root: Path) -> bool:
    """Whether only an operator starts the server of this store, and no client. Raises ConfigError."""
    file = Stored(root)
    data = file.text()
    if data is None:
        return False
    found, _ = checked(file.path, data)
    said = found.get("started", "auto").lower()
    return bool(said == "by-operator" or (said == "auto" and any(map(found.get, BY_OPERATOR))))


def _check_user(line: Any, where: str) -> None:
    words = line.split() if isinstance(line, str) else []
    if any(word[:1] in "<>" for word in words[2:]):
        raise ConfigError(
            f"{where}user {words[1]} has a password in clear; write its hash, #SHA256 as ACL GETUSER shows it"
        )


def _name_of(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"user {uid}"
