"""Rejoin: a follower gives up what its leader's history does not have, and keeps a copy of it.

    1. Look at the own log where the leader says that the histories part, and decide (`history.consider`).
    2. Publish `quarantine/<N+1, 20 digits>.<incarnation, 16 hex digits>/report.json` (aof/surplus.py).
    3. Rewind the log to N (aof/rewind.py): the surplus becomes segments beside the report, then leaves the log.
    4. Rebuild memory from the rest of the log, and ask the leader again.

The incarnation is that of the newest segment of the log, so each life of a log has a directory of its own. After a
power cut the store has all of the log or a part of it that reaches at least to N, and asks its leader again as any
follower does. So nothing has to be remembered.
"""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Final

from tidelog.aof import identity, segment
from tidelog.aof.errors import Released
from tidelog.aof.seek import position_after
from tidelog.aof.segment import Position
from tidelog.aof.surplus import surplus_behind
from tidelog.replication.errors import LinkError, ProtocolError, Refused
from tidelog.replication.handshake import Rejoin, Resync, Stop
from tidelog.replication.history import NoFrame, Own, consider
from tidelog.store.commit.core import Core

SURPLUS_S: Final = 10.0  # the default of `replica-surplus-seconds`

_logger = logging.getLogger("tidelog.replication")


def rejoin(core: Core, asked: Rejoin, surplus_s: float, replace: bool = False) -> Path | Resync:
    """Do as the leader has asked, or say why a copy of its data is needed. Returns the directory of the surplus.

    Reads and copies files, and holds the store's lock for a part of that: call it in a thread, while no link is up.

    surplus_s   seconds that a surplus may span which no promotion has given up
    replace     a person has agreed to give it up

    Raises Refused if only a person may give it up; LinkError if the store has changed meanwhile; ProtocolError,
    TidelogError, AofError, OSError.
    """
    roles = core.roles
    assert roles is not None
    with core.lock:
        if core.trouble is not None:
            core.mend()
        if core.following is None:
            raise LinkError("this store has become a leader")
        core.log.flush()
        role, last = roles.role, core.log.written_lsn
    if asked.uuid != roles.uuid or not 0 < asked.lsn < last:
        raise ProtocolError(
            f"it says that both logs part behind LSN {asked.lsn} of store {asked.uuid.hex()}, but this is store "
            f"{roles.uuid.hex()} with LSN {last}"
        )
    disk, directory = roles.disk, core.root / identity.AOF
    at: Position | None = None
    try:
        at = position_after(disk, directory, roles.uuid, asked.lsn)
        frame: int | NoFrame = NoFrame.INSIDE if at is None else at.crc
    except Released:
        frame = NoFrame.RELEASED
    surplus = None if at is None else surplus_behind(disk, directory, roles.uuid, at)
    span_ms = None if surplus is None else surplus.last_ms - surplus.first_ms
    decided = consider(asked, Own(frame, span_ms), last, surplus_s, replace)
    if isinstance(decided, Stop):
        raise Refused(decided.reason)
    if isinstance(decided, Resync):
        return decided
    assert at is not None and surplus is not None
    name = (
        f"{segment.file_name(at.lsn + 1).removesuffix(segment.SUFFIX)}.{surplus.incarnation:016x}"
    )
    aside = core.root / identity.QUARANTINE / name
    report = surplus.report(at, f"{role.host} {role.port}")
    why_not = roles.rewind(at, aside, report, role, last)
    if why_not:
        return Resync(asked.uuid, asked.last, at.lsn, f"the log cannot be rewound: {why_not}")
    _logger.warning(
        "%s has given up LSN %d to %d, which its leader %s:%d does not have; they are kept in %s",
        *(core.root, surplus.first_lsn, surplus.last_lsn, role.host, role.port, aside),
    )
    return aside
