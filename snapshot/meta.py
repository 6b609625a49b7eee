"""Meta: the row that says of which moment all other rows of a checkpoint are.

It is written in the same transaction as they are, as a msgpack map with these names, so that a later version can
add to them. A file without this row is no checkpoint: its writer has not finished.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final, NamedTuple

import msgpack

from tidelog.aof.errors import NewerFormat
from tidelog.aof.reader import Epoch
from tidelog.aof.segment import Position
from tidelog.aof.start import Start
from tidelog.engine.errors import CorruptBlock
from tidelog.engine.rowkeys import META
from tidelog.snapshot.environment import ColdRows
from tidelog.snapshot.errors import DamagedCheckpoint

FORMAT: Final = 1


class Meta(NamedTuple):
    """What a checkpoint says of itself.

    uuid       of the store, 16 bytes
    position   the place in the log where it was taken. Its LSN is P
    epochs     every life up to P
    now        unix ms of the newest unit in it
    number     of this checkpoint in its file, counted from 1
    taken      unix ms by the wall clock, when it was begun
    tables     what the engine wants to know before any row is read (`State.tables_meta`)
    sums       of all other rows (snapshot/sums.py), packed; None: they are not known
    """

    uuid: bytes
    position: Position
    epochs: tuple[Epoch, ...] = ()
    now: int = 0
    number: int = 1
    taken: int = 0
    tables: Any = None
    sums: bytes | None = None

    @property
    def start(self) -> Start:
        """What recovery has to know to read on in the log."""
        return Start(*self.position, self.epochs, self.now)

    def pack(self) -> bytes:
        """The payload of the row."""
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
        packed: bytes = msgpack.packb(fields)
        return packed

    @classmethod
    def unpack(cls, path: Path, payload: bytes) -> Meta:
        """The meta of the checkpoint in `path`. Raises NewerFormat, DamagedCheckpoint."""
        try:
            fields = msgpack.unpackb(payload, strict_map_key=False, use_list=True)
            written = fields["format"]
            if written > FORMAT:
                raise NewerFormat(path, written, FORMAT)
            position = fields["position"]
            return cls(
                uuid=fields["uuid"],
                position=Position(*(position[name] for name in Position._fields)),
                epochs=tuple(Epoch(*epoch) for epoch in fields["epochs"]),
                now=fields["now"],
                number=fields["number"],
                taken=fields["taken"],
                tables=fields["tables"],
                sums=fields.get("sums"),
            )
        except (ValueError, KeyError, TypeError, msgpack.UnpackException) as error:
            raise DamagedCheckpoint(
                path, 0, f"the row that describes it cannot be read ({error!r})"
            ) from error


def read_meta(rows: ColdRows, path: Path) -> Meta | None:
    """The meta among `rows`; None if nothing was ever committed there.

    Raises DamagedCheckpoint, NewerFormat, CheckpointError.
    """
    try:
        payload = rows.get(META)
    except CorruptBlock as error:
        raise DamagedCheckpoint(path, 0, str(error)) from error
    if payload is not None:
        return Meta.unpack(path, payload)
    if rows.number():
        # To go on over such rows as if there were none would bring back what was deleted.
        raise DamagedCheckpoint(path, 0, "the row that describes it is missing")
    return None
