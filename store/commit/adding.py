"""Adding: which units only add data. A store at its quota refuses these, and no others.

A unit passes if it also settles or removes something, as an ack with a result, a retry of a dead job and an XADD that
trims do. It passes too if it delivers entries of another stream than those it adds to: a failure that is noted while
its job is held back, or a tick of a schedule. A put with a delay delivers what it adds, so it is refused.

The names are needed where several commands are one unit: each is decided after the ones before it were applied, which
is too late to refuse the unit.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from tidelog.engine.api import (
    APPEND,
    COPY,
    DEL,
    DELIVER,
    FLUSHALL,
    FLUSHDB,
    OPCODE,
    RESTORE,
    SERIES,
    SET,
    XACK,
    XACKDEL,
    XADD,
    XADD_IDMP,
    XADD_MANY,
    XADD_NODE,
    XDEL,
    XGROUP_DESTROY,
    XNACK,
    XTRIM,
    Effect,
)

ADDS: Final = frozenset((XADD, XADD_NODE, XADD_IDMP, XADD_MANY, SET, APPEND, COPY, RESTORE))
SETTLES: Final = frozenset(
    (XACK, XACKDEL, XNACK, XDEL, XTRIM, XGROUP_DESTROY, DEL, FLUSHDB, FLUSHALL)
)
# The effects that the commands of a unit may have, as far as `only_adds` tells them apart.
BY_NAME: Final = {
    name: opcode
    for opcode, names in (
        (XADD, b"xadd"),
        (SET, b"set setnx setex psetex getset mset msetnx incr decr incrby decrby"),
        (APPEND, b"append"),
        (COPY, b"copy"),
        (RESTORE, b"restore"),
        (DELIVER, b"xclaim xautoclaim xreadgroup"),
        (XACK, b"xack"),
        (XACKDEL, b"xackdel"),
        (XNACK, b"xnack"),
        (XDEL, b"xdel xdelex"),
        (XTRIM, b"xtrim"),
        (DEL, b"del unlink getdel"),
        (FLUSHDB, b"flushdb"),
        (FLUSHALL, b"flushall"),
    )
    for name in names.split()
}
OTHER: Final = 0  # the opcode of every other command
AN_XADD: Final[tuple[Effect, ...]] = ((XADD, 0, b""),)


def only_adds(effects: Iterable[Effect]) -> bool:
    """Whether a unit with these effects adds data, and does nothing that takes the store's work forward."""
    added, delivered = set(), set()
    for effect in effects:
        opcode = effect[0] & OPCODE
        if opcode in SETTLES:
            return False
        # what a series of a client's writes stores (server/once.py) is small, and expires
        if opcode in ADDS and not effect[2].startswith(SERIES):
            added.add(effect[1:3])
        elif opcode == DELIVER:
            delivered.add(effect[1:3])
    return bool(added) and delivered <= added
