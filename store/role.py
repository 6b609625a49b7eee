"""REPLICA: the file that says whether a store leads or follows. Lines of text, published anew with each change.

    tidelog replica
    format 1
    role follower                              or leader
    id 0123456789abcdef0123456789abcdef        random, of this copy of the store
    leader 10.0.0.7 6379                       host and port; the line is missing if the role is leader
    generation 3
    reason followed by REPLICAOF
    crc32c 89abcdef                            of the lines above, with their line feeds

A store without this file is a leader that has never followed. The file is read at each open, and it decides: options
of an open do not change a role that it states.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final, Literal, NamedTuple

from tidelog.aof.errors import Damage
from tidelog.aof.layout import REPLICA
from tidelog.aof.textfile import TextFile
from tidelog.disk import recipe
from tidelog.disk.interface import Disk

Kind = Literal["leader", "follower"]

FORMAT: Final = 1
BYTES_MAX: Final = 64 << 10  # a longer file is damaged
HOST_BYTES_MAX: Final = 255
REASON_CHARS_MAX: Final = 1000

_LINES: Final = re.compile(
    r"role (leader|follower)\nid ([0-9a-f]{32})\n(?:leader ([!-~]{1,255}) ([0-9]{1,5})\n)?"
    r"generation ([0-9]{1,10})\nreason (.*)\n"
)
_ADVICE: Final = (
    "The data is not concerned. To open the store as a leader, move the file away; to open it as a follower, move it "
    "away and let the store follow its leader again"
)
_TEXT: Final = TextFile(
    "tidelog replica",
    FORMAT,
    malformed="the file is incomplete or is not a REPLICA file",
    advice=_ADVICE,
)


class Role(NamedTuple):
    """The role of a store: whether it takes writes or follows another store's log. `Store.role` returns it.

    Attributes:
        kind: `leader` or `follower`.
        id: 32 hexadecimal digits, random, of this copy of the store; empty until the store first follows.
        host: Host of the leader; empty in a leader.
        port: Port of the leader; 0 in a leader.
        generation: How often the history of this store went on under another leader; in a leader the next life has
            at least this generation.
        reason: Why the store has this role.
    """

    kind: Kind
    id: str = ""
    host: str = ""
    port: int = 0
    generation: int = 0
    reason: str = ""

    @property
    def follows(self) -> bool:
        """Whether the store is a follower."""
        return self.kind == "follower"


ALONE: Final = Role("leader")  # the role of a store without the file


def check_address(host: str, port: int) -> None:
    """Raise ValueError if a leader cannot have this address."""
    if not re.fullmatch(f"[!-~]{{1,{HOST_BYTES_MAX}}}", host):
        raise ValueError(f"{host!r} is not the name or address of a host")
    if not isinstance(port, int) or not 1 <= port <= 65535:
        raise ValueError(f"{port!r} is not a port: choose one from 1 to 65535")


def render(role: Role) -> bytes:
    leader = f"leader {role.host} {role.port}\n" if role.follows else ""
    reason = " ".join(role.reason.split())[:REASON_CHARS_MAX]
    return _TEXT.render(
        f"role {role.kind}\nid {role.id}\n{leader}generation {role.generation}\nreason {reason}\n"
    )


def parse(path: Path, data: bytes) -> Role:
    """The role in the text of a REPLICA file. Raises Damage, NewerFormat."""
    lines = _LINES.fullmatch(_TEXT.parse(path, data))
    if lines is None or (lines[1] == "follower") != (lines[3] is not None):
        raise Damage(path, 0, "the lines do not state a role", _ADVICE)
    kind: Kind = "follower" if lines[1] == "follower" else "leader"
    return Role(kind, lines[2], lines[3] or "", int(lines[4] or 0), int(lines[5]), lines[6])


def read(disk: Disk, root: Path) -> Role:
    """The role of the store in `root`. Raises Damage, NewerFormat, OSError."""
    path = root / REPLICA
    try:
        return parse(path, recipe.read(disk, path, BYTES_MAX))
    except FileNotFoundError:
        return ALONE


def publish(disk: Disk, root: Path, role: Role) -> None:
    """State the role of the store in `root`. Raises OSError: the file states the old role or the new one."""
    recipe.publish(disk, root / REPLICA, render(role))
