"""Where two histories part, and what is done about it: pure functions over what both sides know.

A life is everything that one writer logged between an open and its close or crash. Its EPOCH record names it by number,
random incarnation and first LSN. Two logs that hold the same life are equal up to that life's first LSN, since its
writer had one log before it. Inside the newest life that both hold, they are equal until the one or the other ends, or
begins another life. That place is the parting point N: the last LSN of the history that both share. The checksum of the
frame that ends with N proves it, because each frame's checksum includes that of the frame before.

A surplus is what the follower's log has behind N. It is given up without asking only if a promotion gave it up already
(the leader's generation is higher), or the fsync policy of a leader that lost power did. In all other cases a person
says which history goes on.

    judge       the leader's answer to a request. It knows its own log, and of the follower's what the request says
    consider    the follower's answer to a REJOIN. It knows its own frames, and how long they took
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Sequence
from typing import NamedTuple

from tidelog.aof.epochs import generation
from tidelog.aof.reading.reader import Epoch
from tidelog.replication.handshake import (
    LIVES_MAX,
    Behind,
    Continue,
    Follow,
    Refuse,
    Rejoin,
    Reply,
    Resync,
    Stop,
    Superseded,
    Unpromoted,
)

# the consent, in messages
REPLACE = (
    "REPLICAOF host port REPLACE, or tidelog.follow with replace=True, sets it aside and follows"
)


class NoFrame(enum.Enum):
    """An LSN that no frame of a log ends with, as far as that log can say."""

    INSIDE = "inside a frame"
    RELEASED = "no longer in the log"


class Upstream(NamedTuple):
    """The knowledge of the side that is asked to ship its log.

    id          of this copy of the store
    lives       newest first, all of them. A leader has logged the EPOCH of its present life
    last        its last LSN
    frame_at    the checksum of the header of the frame that ends with an LSN up to `last`, or why there is none. For
                LSN 0 it is 0 while the log begins with LSN 1
    following   whether it is a follower itself
    known_at    the checksum at an LSN that is no longer in its log, if it knows that from elsewhere
    """

    uuid: bytes
    id: bytes
    lives: Sequence[Epoch]
    last: int
    frame_at: Callable[[int], int | NoFrame]
    following: bool
    known_at: Callable[[int], int | None] = lambda lsn: None


class Own(NamedTuple):
    """The follower's knowledge about its log behind a parting point.

    frame      checksum of the header of its frame that ends there, or why there is none
    span_ms    between the `now` of the first frame that has records behind it and that of the last frame; None if the
               first was released
    """

    frame: int | NoFrame
    span_ms: int | None


def judge(upstream: Upstream, follow: Follow) -> Reply:
    """The reply to a follower's request."""
    reply = _judge(upstream, follow)
    if follow.copy and isinstance(reply, Continue | Rejoin):
        shared = follow.lsn if isinstance(reply, Continue) else reply.lsn
        reason = "the follower cannot go on from its log, or rewind it"
        same = isinstance(reply, Continue)  # what a REJOIN gives up is kept in any case
        return Resync(upstream.uuid, upstream.last, shared, reason, same)
    return reply


def _judge(upstream: Upstream, follow: Follow) -> Reply:
    if follow.id == upstream.id:
        return Refuse(
            "both sides are the same copy of one store. A store cannot follow itself; to make a copied directory a "
            "follower, delete the file REPLICA in it"
        )
    if follow.heir:
        unknown = _not_led(upstream, follow)
        if unknown is not None:
            return unknown
    if upstream.following and not upstream.lives:
        return Behind(upstream.uuid, upstream.last)
    assert upstream.lives, "a leader logs the EPOCH of its life before it answers"
    if not follow.lsn:
        return _from_the_beginning(upstream)
    if follow.uuid != upstream.uuid:
        return _another_store(upstream, follow)
    if generation(follow.lives[0].number) > generation(upstream.lives[0].number):
        return Superseded(
            f"the follower's log has generation {generation(follow.lives[0].number)}, and this store's has "
            f"{generation(upstream.lives[0].number)}: the follower's was promoted later. Let this store follow it"
        )
    common = _newest_common(upstream.lives, follow.lives)
    if common is None:
        return _nothing_in_common(upstream, follow)
    theirs, ours = follow.lives.index(common), list(upstream.lives).index(common)
    their_end = follow.lives[theirs - 1].lsn - 1 if theirs else follow.lsn
    our_end = upstream.lives[ours - 1].lsn - 1 if ours else upstream.last
    if not theirs and their_end <= our_end:
        return _no_surplus(upstream, follow, common)
    return _surplus(upstream, follow, common, min(their_end, our_end))


def _not_led(upstream: Upstream, follow: Follow) -> Reply | None:
    """The answer to a store that has told a copy to lead, if this store does not prove that the copy did.

    None: this store has a higher generation, so the other one has nothing more to say, whichever copy this is.
    """
    ours = generation(upstream.lives[0].number) if upstream.lives else 0
    theirs = generation(follow.lives[0].number) if follow.lives else 0
    if upstream.uuid == follow.uuid and ours > theirs:
        return None
    if upstream.following and upstream.id == follow.heir:
        return Unpromoted(upstream.uuid, upstream.last)
    what = "follows another one" if upstream.following else "leads without having been told to"
    return Refuse(
        f"this store has generation {ours} and {what}, so it does not know whether the copy {follow.heir.hex()} was "
        f"promoted after generation {theirs}. Ask that copy, or make one of the stores the leader with REPLICAOF NO ONE"
    )


def _from_the_beginning(upstream: Upstream) -> Reply:
    if upstream.frame_at(0) is NoFrame.RELEASED:
        reason = "the leader's log no longer begins with LSN 1"
        return Resync(upstream.uuid, upstream.last, 0, reason)
    return Continue(upstream.uuid, upstream.last)


def _another_store(upstream: Upstream, follow: Follow) -> Reply:
    reason = (
        f"the follower holds store {follow.uuid.hex()} through LSN {follow.lsn}, and this is store "
        f"{upstream.uuid.hex()} with LSN {upstream.last}"
    )
    if follow.replace:
        return Resync(upstream.uuid, upstream.last, 0, reason)
    return Refuse(f"{reason}. If the follower's data is not needed here, {REPLACE}")


def _nothing_in_common(upstream: Upstream, follow: Follow) -> Reply:
    """A promotion gives up a surplus behind what both share. Logs that share nothing are two stores, whatever their
    uuid is, so a promoted store that never received anything takes no data from the one it should have followed."""
    oldest = follow.lives[-1]
    listed = len(follow.lives) < LIVES_MAX or oldest.lsn == 1
    reason = (
        "the logs share no life"
        if listed
        else f"the logs part before LSN {oldest.lsn}, more than {LIVES_MAX} lives ago"
    )
    if follow.replace or (not listed and _promoted_past(upstream, follow)):
        return Resync(upstream.uuid, upstream.last, 0, reason)
    return _stop(upstream, follow, 0 if listed else oldest.lsn - 1, reason)


def _no_surplus(upstream: Upstream, follow: Follow, common: Epoch) -> Reply:
    frame = upstream.frame_at(follow.lsn)
    if frame == follow.crc:
        return Continue(upstream.uuid, upstream.last)
    known = upstream.known_at(follow.lsn) if frame is NoFrame.RELEASED else None
    if frame is NoFrame.RELEASED and known in (None, follow.crc):
        reason = f"the leader no longer has the log behind LSN {follow.lsn}"
        same = known is not None
        return Resync(upstream.uuid, upstream.last, follow.lsn, reason, same)
    if frame is NoFrame.INSIDE:
        reason = f"LSN {follow.lsn}, the follower's last, lies inside a frame of this store"
    else:
        reason = f"the frames that end with LSN {follow.lsn} have different checksums"
    if follow.replace:
        return Resync(upstream.uuid, upstream.last, common.lsn, reason)
    return _stop(upstream, follow, common.lsn, f"{reason}, in the same life")


def _surplus(upstream: Upstream, follow: Follow, common: Epoch, parting: int) -> Reply:
    if upstream.following and parting == upstream.last:
        return Behind(upstream.uuid, upstream.last)
    frame = upstream.frame_at(parting)
    if frame is NoFrame.INSIDE:
        reason = f"LSN {parting}, the last that both share, lies inside a frame of this store"
        if follow.replace:
            return Resync(upstream.uuid, upstream.last, common.lsn, reason)
        return _stop(upstream, follow, parting, reason)
    crc = None if isinstance(frame, NoFrame) else frame
    if follow.replace or _promoted_past(upstream, follow):
        return Rejoin(upstream.uuid, upstream.last, parting, crc, short=False)
    if common == follow.lives[0] and upstream.lives[0] not in follow.lives:
        return Rejoin(upstream.uuid, upstream.last, parting, crc, short=True)
    if common == follow.lives[0]:
        reason = "the follower goes on with this store's present life: one of them is a copy"
    else:
        newest = follow.lives[0]
        reason = f"the follower was a leader itself (life {newest.number}, from LSN {newest.lsn})"
    return _stop(upstream, follow, parting, reason)


def _stop(upstream: Upstream, follow: Follow, parting: int, reason: str) -> Stop:
    return Stop(
        parting,
        f"the histories part behind LSN {parting}: {reason}. The follower has records through LSN {follow.lsn}, this "
        f"store through LSN {upstream.last}. If the follower's part is not needed, {REPLACE}",
    )


def _promoted_past(upstream: Upstream, follow: Follow) -> bool:
    return generation(upstream.lives[0].number) > generation(follow.lives[0].number)


def _newest_common(ours: Sequence[Epoch], theirs: Sequence[Epoch]) -> Epoch | None:
    known = set(ours)
    return next((life for life in theirs if life in known), None)


def consider(
    rejoin: Rejoin, own: Own, last: int, surplus_seconds_max: float, replace: bool = False
) -> Rejoin | Resync | Stop:
    """The follower's decision about its surplus, the records behind `rejoin.lsn` through `last`.

    Rejoin: set it aside, end the log at `rejoin.lsn`, and ask again. Resync: set it aside, and ask for everything. With
    `replace`, a person's consent, the leader does not answer SHORT.
    """
    parting = rejoin.lsn
    differ = ""
    if own.frame is NoFrame.INSIDE:
        differ = f"LSN {parting} lies inside a frame here"
    elif isinstance(own.frame, int) and rejoin.crc not in (None, own.frame):
        differ = f"the frames that end with LSN {parting} have different checksums"
    if differ:
        if replace:
            return Resync(rejoin.uuid, rejoin.last, 0, differ)
        return _stop_here(rejoin, last, differ)
    if rejoin.short:
        if own.span_ms is None:
            return _stop_here(
                rejoin, last, "its first frame is no longer in the log, so its age is unknown"
            )
        if own.span_ms > surplus_seconds_max * 1000:
            return _stop_here(
                rejoin,
                last,
                f"it spans {own.span_ms / 1000:.1f} seconds, and replica-surplus-seconds is {surplus_seconds_max:g}",
            )
    if own.frame is NoFrame.RELEASED:
        return Resync(
            rejoin.uuid, rejoin.last, parting, f"the log here no longer has LSN {parting}"
        )
    return rejoin


def _stop_here(rejoin: Rejoin, last: int, reason: str) -> Stop:
    return Stop(
        rejoin.lsn,
        f"the histories part behind LSN {rejoin.lsn}, and the follower has a surplus through LSN {last}: {reason}. The "
        f"leader has records through LSN {rejoin.last}. If the surplus is not needed, {REPLACE}",
    )
