"""Meta: the row that says which log position the other rows of a checkpoint belong to.

It is written in the same transaction as the other rows. It is a msgpack map with the field names below, so a later
version can add fields. A file with commits and without this row is damaged; one without commits is no checkpoint yet.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final, NamedTuple, Protocol

import msgpack

from tidelog.aof.errors import NewerFormat
from tidelog.aof.reading.reader import Epoch
from tidelog.aof.segment import Position
from tidelog.aof.start import Start
from tidelog.engine.errors import CorruptBlock
from tidelog.engine.rowkeys import META
from tidelog.snapshot.errors import DamagedCheckpoint

FORMAT: Final = 1
LEAD_END_MS: Final = 1 << 48  # thousands of years


class Meta(NamedTuple):
    """The description of a checkpoint.

    uuid       of the store, 16 bytes
    position   the place in the log where it was taken. Its LSN is P
    epochs     every life up to P
    now        time of the newest unit up to P, unix ms
    number     counts the checkpoints in this file, from 1
    taken      wall clock when the checkpoint began, unix ms
    tables     facts that the engine needs before it reads any row (`State.tables_meta`)
    lead       how far the store's time was ahead of the wall clock, ms; 0 = not, or by less than a minute
    sums       sums of all other rows (snapshot/rows/sums.py), packed; None if unknown
    """

    uuid: bytes
    position: Position
    epochs: tuple[Epoch, ...] = ()
    now: int = 0
    number: int = 1
    taken: int = 0
    tables: Any = None
    sums: bytes | None = None
    lead: int = 0

    @property
    def start(self) -> Start:
        """Where recovery continues in the log."""
        return Start(*self.position, self.epochs, self.now)

    def pack(self) -> bytes:
        """The payload of the row META."""
        fields = {
            "format": FORMAT,
            "uuid": self.uuid,
            "position": self.position._asdict(),
            "epochs": self.epochs,
            "now": self.now,
            "number": self.number,
            "taken": self.taken,
            "tables": self.tables,
            "sums": self.sums,
        }
        if self.lead:
            fields["lead"] = self.lead
        packed: bytes = msgpack.packb(fields)
        return packed

    @classmethod
    def unpack(cls, path: Path, payload: bytes) -> Meta:
        """Parse the payload of the row META of the checkpoint at `path`. Raises NewerFormat, DamagedCheckpoint."""
        try:
            fields = msgpack.unpackb(payload, strict_map_key=False, use_list=True)
            written = fields["format"]
            if written > FORMAT:
                raise NewerFormat(path, written, FORMAT)
            position, lead = fields["position"], fields.get("lead", 0)
            if not isinstance(lead, int) or not 0 <= lead < LEAD_END_MS:
                raise ValueError(f"lead: {lead!r}")
            return cls(
                uuid=fields["uuid"],
                position=Position(*(position[name] for name in Position._fields)),
                epochs=tuple(Epoch(*epoch) for epoch in fields["epochs"]),
                now=fields["now"],
                number=fields["number"],
                taken=fields["taken"],
                tables=fields["tables"],
                sums=fields.get("sums"),
                lead=lead,
            )
        except (ValueError, KeyError, TypeError, msgpack.UnpackException) as error:
            raise DamagedCheckpoint(
                path, 0, f"the row that describes the checkpoint cannot be read ({error!r})"
            ) from error


class Committed(Protocol):
    """The rows of one commit: `rows.environment.ColdRows`, or a `rows.rowfile.RowFile`."""

    def get(self, key: bytes) -> bytes | None: ...

    def number(self) -> int:
        """The number of the commit; 0 before the first."""
        ...


def read_meta(rows: Committed, path: Path) -> Meta | None:
    """Read the row META from `rows`. Return None if nothing was ever committed.

    Raises DamagedCheckpoint, NewerFormat, CheckpointError.
    """
    try:
        payload = rows.get(META)
    except CorruptBlock as error:
        raise DamagedCheckpoint(path, 0, str(error)) from error
    if payload is not None:
        return Meta.unpack(path, payload)
    if rows.number():
        # Do not treat rows without META as an empty checkpoint: deleted data would come back.
        raise DamagedCheckpoint(path, 0, "the row that describes the checkpoint is missing")
    return None
