"""REPLICA: the file that says whether a store leads, follows or hands over. Lines of text, published anew with each
change.

    tidelog replica
    format 1
    role follower                              or leader, or handing over
    id 0123456789abcdef0123456789abcdef        random, of this copy of the store
    leader 10.0.0.7 6379                       host and port; only if the role is follower
    heir 10.0.0.8 6379 fedcba98...76543210     host, port and ID of the copy that was told to lead; only if the role is
                                               handing over
    generation 3
    reason followed by REPLICAOF
    crc32c 89abcdef                            of the lines above, with their line feeds

A store without this file is a leader that has never followed. The file is read at each open, and it decides: options
of an open do not change a role that it states.

A leader states `handing over` before it tells a follower to lead. From then on it takes no writes until it knows
whether that follower leads. A file with this role has format 2, so that a tidelog that does not know the role refuses
the store instead of opening it as a leader.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final, Literal, NamedTuple, cast

from tidelog.aof.errors import Damage
from tidelog.aof.layout import REPLICA
from tidelog.aof.textfile import TextFile
from tidelog.disk import recipe
from tidelog.disk.interface import Disk

Kind = Literal["leader", "follower", "handing over"]

FORMAT: Final = 2  # of a file with the role `handing over`
FORMAT_PLAIN: Final = 1  # of the others
BYTES_MAX: Final = 64 << 10  # a longer file is damaged
HOST_BYTES_MAX: Final = 255
REASON_CHARS_MAX: Final = 1000

_LINES: Final = (
    r"role (leader|follower|handing over)\nid ([0-9a-f]{32})\n"
    r"(?:(leader|heir) ([!-~]{1,255}) ([0-9]{1,5})(?: ([0-9a-f]{32}))?\n)?"
    r"generation ([0-9]{1,10})\nreason (.*)\n"
)
# The line that names another store, by the role. An heir has an ID.
_OTHER: Final[dict[str, tuple[str | None, bool]]] = {
    "leader": (None, False),
    "follower": ("leader", False),
    "handing over": ("heir", True),
}
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
_PLAIN: Final = _TEXT._replace(format=FORMAT_PLAIN)


class Role(NamedTuple):
    """The role of a store: whether it takes writes or follows another store's log. `Store.role` returns it.

    Attributes:
        kind: `leader`, `follower`, or `handing over`: it has told a follower to lead, does not know yet how that
            ended, and takes no writes.
        id: 32 hexadecimal digits, random, of this copy of the store; empty until the store first follows.
        host: Host of the leader, or of the store that was told to lead; empty in a leader.
        port: Port of the same; 0 in a leader.
        generation: How often the history of this store went on under another leader; in a leader the next life has
            at least this generation.
        reason: Why the store has this role.
        heir: ID of the copy that was told to lead; empty if the store does not hand over.
    """

    kind: Kind
    id: str = ""
    host: str = ""
    port: int = 0
    generation: int = 0
    reason: str = ""
    heir: str = ""

    @property
    def follows(self) -> bool:
        """Whether the store takes no writes: it is a follower or hands over."""
        return self.kind != "leader"

    @property
    def hands_over(self) -> bool:
        """Whether the store has told another one to lead and does not know yet how that ended."""
        return self.kind == "handing over"


ALONE: Final = Role("leader")  # the role of a store without the file


def check_address(host: str, port: int) -> None:
    """Raise ValueError if a leader cannot have this address."""
    if not re.fullmatch(f"[!-~]{{1,{HOST_BYTES_MAX}}}", host):
        raise ValueError(f"{host!r} is not the name or address of a host")
    if not isinstance(port, int) or not 1 <= port <= 65535:
        raise ValueError(f"{port!r} is not a port: choose one from 1 to 65535")


def render(role: Role) -> bytes:
    other = ""
    if role.hands_over:
        other = f"heir {role.host} {role.port} {role.heir}\n"
    elif role.follows:
        other = f"leader {role.host} {role.port}\n"
    reason = " ".join(role.reason.split())[:REASON_CHARS_MAX]
    text = _TEXT if role.hands_over else _PLAIN
    return text.render(
        f"role {role.kind}\nid {role.id}\n{other}generation {role.generation}\nreason {reason}\n"
    )


def parse(path: Path, data: bytes) -> Role:
    """The role in the text of a REPLICA file. Raises Damage, NewerFormat."""
    lines = re.fullmatch(_LINES, _TEXT.parse(path, data))
    if lines is None or _OTHER[lines[1]] != (lines[3], lines[6] is not None):
        raise Damage(path, 0, "the lines do not state a role", _ADVICE)
    kind = cast(Kind, lines[1])
    host, port, heir = lines[4] or "", int(lines[5] or 0), lines[6] or ""
    return Role(kind, lines[2], host, port, int(lines[7]), lines[8], heir)


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
