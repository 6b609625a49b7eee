"""A follower's frames, cut from a leader's segments, and what must hold between the two."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

from tests import inside

import tidelog
from tidelog.aof import identity, segment
from tidelog.aof.frame import HEADER, HEADER_BYTES, MAGIC_BYTES
from tidelog.aof.reading.recovery import read_all
from tidelog.aof.received import Batch, Frames
from tidelog.disk import recipe
from tidelog.disk.interface import Disk
from tidelog.disk.real import RealDisk
from tidelog.engine.effects.apply import APPLY
from tidelog.engine.effects.digest import digest as digest_of
from tidelog.engine.effects.effect import Effect
from tidelog.engine.keys.state import State
from tidelog.store.commit.following import Following
from tidelog.store.roles import Roles

REAL = RealDisk()


def roles(db: tidelog.Store) -> Roles:
    found = inside.core(db).roles
    assert isinstance(found, Roles)
    return found


def following(db: tidelog.Store) -> Following:
    found = inside.core(db).following
    assert isinstance(found, Following), "the store leads"
    return found


def follower(path: Path, leader: tidelog.Store, disk: Disk = REAL, **options: Any) -> tidelog.Store:
    """An empty store that follows the leader."""
    db = tidelog.open(path, disk=disk, **{"fsync": "no", **options})
    roles(db).follow("leader", 1)
    roles(db).adopt(roles(leader).uuid)
    return db


def frames_of(root: Path, disk: Disk = REAL) -> Iterator[tuple[int, bytes]]:
    """(last LSN, bytes) of each frame of a store's log, in order."""
    directory = root / identity.AOF
    names = sorted(
        name for name in disk.listdir(directory) if segment.first_lsn_of(name) is not None
    )
    expected = segment.first_lsn_of(names[0]) if names else 1
    for name in names:
        if segment.first_lsn_of(name) != expected:
            continue  # a segment that another one replaced
        data = recipe.read(disk, directory / name)
        at = segment.HEADER_BYTES
        while data.startswith(MAGIC_BYTES, at):
            _, length, first, count, *_ = HEADER.unpack_from(data, at)
            end = at + HEADER_BYTES + length
            if first != expected or end > len(data):
                break
            yield first + count - 1, data[at:end]
            at, expected = end, first + count


def root_of(db: tidelog.Store) -> Path:
    return inside.core(db).root


def flush(db: tidelog.Store) -> None:
    with inside.lock(db):
        inside.log(db).flush()


def batches(
    leader: tidelog.Store,
    after: tuple[int, int],
    nbytes_max: int = 4096,
    disk: Disk = REAL,
) -> Iterator[Batch]:
    """The leader's frames after (LSN, checksum), as a link would bring them."""
    flush(leader)
    found = Frames(roles(leader).uuid, *after)
    found.put(b"".join(data for last, data in frames_of(root_of(leader), disk) if last > after[0]))
    while (batch := found.take(nbytes_max)) is not None:
        yield batch


def pull(db: tidelog.Store, leader: tidelog.Store, nbytes_max: int = 4096) -> int:
    """Let a follower receive all that the leader has. Returns how many batches that were."""
    many = 0
    for batch in batches(leader, following(db).last, nbytes_max):
        following(db).receive(batch)
        many += 1
    return many


def replayed(root: Path, uuid: bytes, disk: Disk = REAL, through: int | None = None) -> str:
    """The digest of what a store's log leads to, read from its beginning."""
    state = State()
    lsns = count(1)

    def apply(records: list[Effect]) -> None:
        for record, lsn in zip(records, lsns):
            if through is None or lsn <= through:
                APPLY[record[0]](state, record)

    read_all(disk, root / identity.AOF, uuid, apply)
    return digest_of(state)


def check(db: tidelog.Store, leader: tidelog.Store, disk: Disk = REAL) -> None:
    """The follower's state is its own log's, and the leader's at the same LSN; the frames are the same bytes."""
    lsn, _ = following(db).last
    flush(leader)
    root, uuid = root_of(db), roles(leader).uuid
    state = digest_of(inside.core(db).state)
    assert state == replayed(root, uuid, disk)
    assert state == replayed(root_of(leader), uuid, disk, through=lsn)
    own = list(frames_of(root, disk))
    theirs = [frame for frame in frames_of(root_of(leader), disk) if frame[0] <= lsn]
    assert own == theirs
    assert not own or own[-1][0] == lsn
