"""Reserved: the keys `tidelog:once:*`, in which the server remembers numbered writes (once.py). No client may name one.

They are ordinary keys of the store, so that logs, followers and snapshots need to know nothing of them. A client that
could write one would make another's next write vanish, and one that could read one would see another's replies. So a
command that names such a key is refused, to every user, and lists of keys leave them out (lists.py).

Looking at each argument of each command would cost the hot path too much. The parser searches a client's bytes for MARK
as they come (wire/requests.py). Only a session that has ever sent it has its commands checked (`Session.guarded`).
"""

from __future__ import annotations

from typing import Final

from tidelog.engine.api import SERIES, Command
from tidelog.engine.errors import CommandError, echo
from tidelog.server.acl.keys import keys

_RESERVED: Final = (
    b"NOPERM no client may use the key '%b': the server keeps the numbers of clients' writes in keys that begin with '"
    + SERIES
    + b"'. Choose another name"
)


def refusal(command: Command, args: list[bytes]) -> CommandError | None:
    """The error of a command that names a reserved key, or None. `args` has the command's arity."""
    if command.name == b"debug":
        # It has no keys in the table of commands, but two subcommands take some.
        named = args[2:]
    else:
        named = keys(command, args)
    if command.name.startswith(b"queue|"):
        return next(filter(None, map(queue_refusal, named)), None)
    for key in named:
        if key.startswith(SERIES):
            return CommandError(_RESERVED % echo(key))
    return None


def queue_refusal(name: bytes) -> CommandError | None:
    """The error of a command that names this queue, or None. The keys of a queue begin with its name and a colon."""
    if (name + b":").startswith(SERIES):
        return CommandError(_RESERVED % echo(name))
    return None
