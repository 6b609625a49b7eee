"""A leader without a socket, whose follower fetches a copy of its data; it may tell lies."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

from tests import inside
from tests.replication.stores import begin_to_follow

import tidelog
from tidelog.replication.errors import LinkError
from tidelog.replication.handshake import Resync
from tidelog.replication.protocol import (
    DATA_FILE,
    FROM_FOLLOWER,
    MANIFEST_FILE,
    SLICE_BYTES_MAX,
    Data,
    Messages,
    Snapshot,
    Want,
)
from tidelog.replication.resync import Resyncing


@dataclasses.dataclass
class Offered:
    """A snapshot of a leader, as it sends it.

    change   of what is sent of the files: file, offset, bytes -> bytes
    """

    uuid: bytes
    snapshot: Snapshot
    files: dict[int, bytes]
    change: Callable[[int, int, bytes], bytes] = lambda file, at, data: data

    def copy(self) -> Offered:
        """Another one, to change."""
        return dataclasses.replace(self, files=dict(self.files))


def offered(leader: tidelog.Store) -> Offered:
    """A new snapshot of a store."""
    made = leader.snapshot()
    files = {
        MANIFEST_FILE: (made.path / "manifest.json").read_bytes(),
        DATA_FILE: (made.path / "data.mdb").read_bytes(),
    }
    manifest = made.manifest
    snapshot = Snapshot(
        *(made.lsn, manifest.position.crc, len(files[MANIFEST_FILE]), len(files[DATA_FILE])),
        bytes.fromhex(manifest.blake2b),
    )
    return Offered(manifest.uuid, snapshot, files)


def follow(db: tidelog.Store) -> None:
    """Make it a follower, if it is none."""
    if inside.core(db).following is None:
        begin_to_follow(db)


def fetch(db: tidelog.Store, offer: Offered, shared: int = 0, same: bool = False) -> int:
    """Resync a follower from what is offered. Returns how many bytes of the data it fetched.

    shared, same   as the leader's reply says
    """
    follow(db)
    reply = Resync(offer.uuid, offer.snapshot.lsn, shared, "a test", same)
    resyncing = Resyncing(inside.core(db), reply, 0.0, "leader")
    asked = Messages(FROM_FOLLOWER)
    sent = 0
    told = offer.snapshot
    sizes = {MANIFEST_FILE: told.manifest_bytes, DATA_FILE: told.data_bytes}

    def serve() -> None:
        nonlocal sent
        asked.put(resyncing.send(0.0))
        for want in asked:
            if isinstance(want, Want):
                data = offer.files[want.file]
                for at in range(want.offset, len(data), SLICE_BYTES_MAX):
                    piece = offer.change(want.file, at, data[at : at + SLICE_BYTES_MAX])
                    sent += len(piece) * (want.file == DATA_FILE)
                    resyncing.receive(Data(want.file, at, piece).pack(), 0.0)
                if len(data) < sizes[want.file]:
                    resyncing.fail(LinkError("the leader closed the connection"))

    resyncing.wake = serve
    resyncing.receive(offer.snapshot.pack(), 0.0)
    resyncing.run()
    return sent
