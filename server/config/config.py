"""Config: the values of all options, from defaults, then the file, then the command line, then CONFIG SET.

    config["appendfsync"]           the value, typed
    config.set([(b"hz", b"20")])    CONFIG SET: all or nothing
    config.on("hz", callback)       called with each new value; if it raises, the change is undone

server/config/options.py lists the options. Not thread-safe.
"""

from __future__ import annotations

import logging
import re
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from difflib import get_close_matches
from math import ceil
from pathlib import Path
from typing import Any, Protocol

from tidelog.disk import recipe
from tidelog.disk.interface import Disk
from tidelog.disk.real import RealDisk
from tidelog.engine.errors import SYNTAX, CommandError, echo
from tidelog.engine.glob import matcher
from tidelog.server.config import file as config_file
from tidelog.server.config.file import rewritten
from tidelog.server.config.kinds import Limit, Refused, Unread
from tidelog.server.config.options import (
    ALIASES,
    FIXED,
    IMMUTABLE,
    LOGS,
    OPTIONS,
    PROTECTED,
    RUN,
    SERVER,
    START,
    STORE,
    UNSAID,
    USERS,
    VOLATILE,
    Option,
)
from tidelog.store.options import Options

NO_FILE = b"ERR The server is running without a config file"
_ECHO_BYTES_MAX = 1000
_GLOB = re.compile(rb"[\[*?]")

_logger = logging.getLogger("tidelog.server")


class ConfigError(Exception):
    """The configuration is invalid. The message is one line: where, which option, what is allowed."""


class PackageMissing(ConfigError):
    """An option needs a package that is not installed. The message has the command that installs it."""


class Stored(Protocol):
    """The file in the store's directory that says how the store is served (server/config/stored.py).

    path        where it is
    defaults    the values of options that it does not name, where they are other than usual
    """

    path: Path
    defaults: Mapping[str, Any]

    def update(self, change: Callable[[bytes], str]) -> None:
        """Replace its text, atomically and durably. Raises ConfigError, OSError and what `change` raises."""


class Config:
    """See the module docstring.

    file        the configuration file, None if there is none
    stored      the one of the store, which CONFIG REWRITE then writes, also if it is not there yet
    remembered  it was there, so a store that is to be served on its own socket only is no mistake
    ephemeral   the embedding program asked for port 0: pick a free port (on the command line, 0 means no port)
    owner       a client has started this server, on the socket in the store's directory (client/owner.py)
    """

    def __init__(self, disk: Disk | None = None) -> None:
        self.file: Path | None = None
        self.stored: Stored | None = None
        self.remembered = False
        self.ephemeral = False
        self.owner = False
        self._disk = disk or RealDisk()
        self._values: dict[str, Any] = {option.name: option.default for option in OPTIONS.values()}
        self._fixed = {option.name for option in OPTIONS.values() if option.when == FIXED}
        self._said: set[str] = set()
        self._users: tuple[bytes, ...] = ()
        self._callbacks: dict[str, list[Callable[[Any], object]]] = {}
        self._writing = threading.Lock()

    def __getitem__(self, name: str) -> Any:
        """The value of an option: int, bool or str; tuples for `save`; class -> Limit for output buffers.

        `users` are the lines of the file, for `Acl.load`.
        """
        return self._users if name == USERS else self._values[name]

    @property
    def normal_limits(self) -> Limit:
        """Output limits of all other clients."""
        limit: Limit = self._values["client-output-buffer-limit"]["normal"]
        return limit

    @property
    def pubsub_limits(self) -> Limit:
        """Output limits of a subscriber."""
        limit: Limit = self._values["client-output-buffer-limit"]["pubsub"]
        return limit

    def store_options(self) -> dict[str, Any]:
        """The store's options, as arguments for `store.options.make_options`."""
        values = self._values
        growth = values["auto-aof-rewrite-percentage"]
        return {
            "fsync": values["appendfsync"],
            "memory_budget": values["maxmemory"] or None,
            "maxdisk": values["maxdisk"] or None,
            "keep_dead_seconds": _said(values["keep-dead-seconds"]),
            "keep_dead_jobs": _said(values["keep-dead-jobs"]),
            "checkpoint_bytes": values["auto-aof-rewrite-min-size"] if growth else 0,
            "save": values["save"],
            "segment_bytes": values["segment-bytes"],
            "retain_bytes": values["retain-bytes"],
            "retain_seconds": values["retain-seconds"] or None,
            "retain_bookmark_bytes": values["retain-bookmark-bytes"],
            "snapshot_every": values["snapshot-every"] or None,
            "keep_snapshots": values["keep-snapshots"],
        }

    # --- startup

    def place(self, root: Path) -> None:
        """Set the store's directory, which `dir` shows."""
        self._values["dir"] = str(root)

    def lead(self, leader: str) -> None:
        """Show the leader that the store follows, as "host port"; "" = none."""
        self._values["replicaof"] = leader

    def adopt(self, options: Options, fsync: str) -> None:
        """Take over the options of a store that is already open; `fsync` is its current policy."""
        values = self._values
        values["appendfsync"] = fsync
        values["save"] = tuple((int(seconds), changes) for seconds, changes in options.save)
        values["maxmemory"] = options.memory_budget or 0
        values["maxdisk"] = options.maxdisk or 0
        seconds, jobs = options.keep_dead_seconds, options.keep_dead_jobs
        values["keep-dead-seconds"] = UNSAID if seconds is None else ceil(seconds)
        values["keep-dead-jobs"] = UNSAID if jobs is None else jobs
        values["auto-aof-rewrite-percentage"] = 100 if options.checkpoint_bytes else 0
        if options.checkpoint_bytes:
            values["auto-aof-rewrite-min-size"] = options.checkpoint_bytes
        values["segment-bytes"] = options.segment_bytes
        values["retain-bytes"] = options.retain_bytes
        values["retain-seconds"] = int(options.retain_seconds or 0)
        values["retain-bookmark-bytes"] = options.retain_bookmark_bytes
        values["snapshot-every"] = int(options.snapshot_every or 0)
        values["keep-snapshots"] = options.keep_snapshots

    def start(self, options: Mapping[str, Any], *, fsync: str | None = None) -> None:
        """Apply options given by a program, names with underscores. Raises ConfigError.

        fsync   the policy of a store that is already open. Options of the store and of logging are then refused,
                because the program that owns the store sets them. None = the server opens the store
        """
        for given, value in options.items():
            option = named(given.replace("_", "-"), "")
            if fsync is not None and option.of != SERVER:
                owner = {STORE: "tidelog.open", LOGS: "the program's own logging"}[option.of]
                raise ConfigError(
                    f"{given} cannot be set here: the store is already open, so set it in {owner}"
                )
            self._put(option, value, "", native=True)
            if option.name == "port":
                self.ephemeral = value == 0
        if fsync is not None:
            self._values["appendfsync"] = fsync
            self._fixed |= {option.name for option in OPTIONS.values() if option.of == LOGS}

    def load(self, path: Path) -> None:
        """Load the configuration file, which CONFIG REWRITE will rewrite. Raises ConfigError."""
        path = path.resolve()  # CONFIG REWRITE must replace the file and not a link to it
        try:
            data = recipe.read(self._disk, path)
        except OSError as error:
            raise ConfigError(f"{path}: {error.strerror or error}") from error
        try:
            found, lines = config_file.read(data)
        except config_file.Malformed as error:
            raise ConfigError(f"{path}{error}") from error
        self.apply(found, lines, path)
        self.file = path

    def apply(self, found: Mapping[str, Any], lines: Mapping[str, int], path: Path) -> None:
        """Apply the keys of a file, with their lines as far as they are known. Raises ConfigError."""
        for name, value in found.items():
            where = f"{path}, line {lines[name]}: " if lines.get(name) else f"{path}: "
            if name == USERS:
                if not isinstance(value, list) or not all(isinstance(line, str) for line in value):
                    raise ConfigError(f'{where}users must be a list of lines: ["user ann on ..."]')
                self._users = tuple(line.encode() for line in value)
            else:
                self._put(named(name, where), value, where, native=True)

    def assume(self, name: str, value: Any) -> None:
        """Another default of an option; nobody has said it."""
        self._values[name] = value

    def says(self, name: str) -> bool:
        """Whether the file, the command line or a program has given the option a value."""
        return name in self._said

    def take(self, name: str, text: str, where: str) -> None:
        """Apply an option of the command line; error messages begin with `where`. Raises ConfigError."""
        self._put(named(name, where), text, where)

    def _put(self, option: Option, given: Any, where: str, *, native: bool = False) -> None:
        old = self._values[option.name]
        try:
            value = option.kind.native(given) if native else option.kind.parse(given)
        except Unread as error:
            raise ConfigError(f"{where}{option.name}: {error}") from error
        except Refused:
            allowed = option.kind.allowed
            if not native:
                allowed = {"true or false": "yes or no"}.get(allowed, allowed)
            got = "" if option.secret else f", not {_shown(given)}"
            raise ConfigError(f"{where}{option.name} must be {allowed}{got}") from None
        if option.name in self._fixed and value != old:
            is_now = option.kind.show(old)
            raise ConfigError(
                f"{where}{option.name} cannot be changed from {is_now or 'empty'}: {option.help}"
            )
        self._values[option.name] = option.kind.over(old, value)
        self._said.add(option.name)

    # --- CONFIG

    def get(self, patterns: Iterable[bytes]) -> list[bytes]:
        """CONFIG GET: alternating names and values of all options that match a pattern."""
        found: dict[str, bytes] = {}  # option, or former name -> name to show
        for pattern in patterns:
            if _GLOB.search(pattern) is None:
                name = pattern.decode("ascii", "replace").lower()
                if name in OPTIONS or name in ALIASES:
                    found.setdefault(name, pattern)  # shown as it was typed, as Redis does
                continue
            matches = matcher(pattern.lower())
            for name in (*OPTIONS, *ALIASES):
                if name not in found and matches(name.encode()):
                    found[name] = name.encode()
        answer: list[bytes] = []
        for given, shown in found.items():
            name = ALIASES.get(given, given)
            value = OPTIONS[name].kind.show(self._values[name])
            answer += shown, value.encode(errors="surrogateescape")
        return answer

    def set(self, pairs: Sequence[tuple[bytes, bytes]]) -> None:
        """CONFIG SET: all or nothing. Raises CommandError with Redis 7.0's messages."""
        chosen: dict[str, tuple[Option, bytes]] = {}  # by the name that was given
        for raw, text in pairs:
            given = raw.decode("ascii", "replace").lower()
            option = OPTIONS.get(ALIASES.get(given, given))
            if option is None:
                shown = echo(raw, _ECHO_BYTES_MAX)
                raise CommandError(
                    b"ERR Unknown option or number of arguments for CONFIG SET - '%b'" % shown
                )
            if option.name in PROTECTED:
                raise _failed(raw, "can't set protected config")
            if option.name in IMMUTABLE or option.when == START:
                raise _failed(raw, "can't set immutable config")
            if given in chosen:
                raise _failed(raw, "duplicate parameter")
            chosen[given] = option, text
        values: dict[str, Any] = {}
        for given, (option, text) in chosen.items():
            name = option.name
            try:
                value = option.kind.parse(text.decode("utf-8", "surrogateescape"))
            except Refused as error:
                raise _failed(given.encode(), str(error)) from None
            if name in self._fixed and value != self._values[name]:
                raise _failed(given.encode(), "can't set immutable config")
            values[name] = option.kind.over(self._values[name], value)
        self._change(values)

    def _change(self, values: dict[str, Any]) -> None:
        """Set values and call their callbacks. If a callback raises, restore all values."""
        before = {name: self._values[name] for name in values}
        self._values.update(values)
        told: list[str] = []
        try:
            for name, value in values.items():
                if value != before[name] or name in VOLATILE:
                    told.append(name)
                    for callback in self._callbacks.get(name, ()):
                        callback(value)
        except BaseException as error:
            self._values.update(before)
            for name in reversed(told):
                for callback in self._callbacks.get(name, ()):
                    try:
                        callback(before[name])
                    except Exception as other:
                        # an old value could not be restored; the caller still gets the first error
                        _logger.error("%s could not be restored to its old value: %r", name, other)
            if isinstance(error, ValueError):
                raise _failed(told[-1].encode(), str(error)) from error
            raise

    def on(self, name: str, callback: Callable[[Any], object]) -> None:
        """Call `callback` with each new value of an option, after all values of a CONFIG SET are in place.

        To refuse a value it raises ValueError with a reason. It is then called again with the restored value.
        """
        assert OPTIONS[name].when == RUN
        self._callbacks.setdefault(name, []).append(callback)

    def rewrite(self, users: Sequence[bytes] = ()) -> Callable[[], None]:
        """CONFIG REWRITE: return a function that rewrites the file with the current values and the users' lines.

        The function waits for the disk, so call it in another thread. It reads the file again, changes what differs,
        and replaces the file atomically and durably. Comments and order stay. Both raise CommandError.
        """
        path, stored = self.file, self.stored
        if path is None and stored is None:
            raise CommandError(NO_FILE)
        values = dict(self._values)
        if self.owner:
            # Otherwise the users or ports that are written would leave the next start to an operator.
            values["started"] = "by-clients"

        def write() -> None:
            with self._writing:
                try:
                    if stored is not None:
                        defaults = stored.defaults
                        stored.update(lambda data: rewritten(data, values, users, defaults))
                    elif path is not None:
                        text = rewritten(self._text(path), values, users)
                        recipe.publish(self._disk, path, text.encode())
                except (OSError, ConfigError, config_file.Malformed) as error:
                    reason = getattr(error, "strerror", None) or str(error)
                    if isinstance(error, config_file.Malformed):
                        reason = f"{path if stored is None else stored.path}{error}"
                    shown = echo(reason.encode(errors="surrogateescape"), _ECHO_BYTES_MAX)
                    raise CommandError(b"ERR Rewriting config file: %b" % shown) from error

        return write

    def _text(self, path: Path) -> bytes:
        try:
            return recipe.read(self._disk, path)
        except FileNotFoundError:
            return b""  # create a new one, as Redis


def _said(value: int) -> int | None:
    """The value of an option that the store decides if nobody says it."""
    return None if value == UNSAID else value


def named(name: str, where: str = "") -> Option:
    """The option of this name. Raises ConfigError, which begins with `where`."""
    option = OPTIONS.get(name)
    if name == USERS:
        raise ConfigError(f"{where}users can only be set in the configuration file")
    if option is None:
        near = [ALIASES[name]] if name in ALIASES else get_close_matches(name, [*OPTIONS, USERS], 1)
        hint = f"; did you mean {near[0]}?" if near else ""
        raise ConfigError(f"{where}there is no option {name!r}{hint}")
    return option


def _shown(given: Any) -> str:
    if isinstance(given, bool):
        return str(given).lower()
    return repr(given) if len(repr(given)) <= 80 else repr(given)[:80] + "..."


def _failed(name: bytes, reason: str) -> CommandError:
    return CommandError(
        b"ERR CONFIG SET failed (possibly related to argument '%b') - %b"
        % (echo(name), echo(reason.encode(errors="surrogateescape"), _ECHO_BYTES_MAX))
    )


def pairs_of(words: Sequence[bytes]) -> list[tuple[bytes, bytes]]:
    """Split the arguments of CONFIG SET into (name, value) pairs. Raises CommandError."""
    if len(words) % 2:
        raise CommandError(SYNTAX)
    return list(zip(words[::2], words[1::2], strict=True))
