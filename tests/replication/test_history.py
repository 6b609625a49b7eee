"""Where histories part: the table row by row, and random families of logs against a comparison frame by frame."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.replication.histories import Log, asked, common
from tests.rounds import some_and_all

from tidelog.aof.epochs import generation
from tidelog.replication.handshake import (
    LIVES_MAX,
    Behind,
    Continue,
    Refuse,
    Rejoin,
    Reply,
    Resync,
    Stop,
    Superseded,
    Unpromoted,
)
from tidelog.replication.history import NoFrame, judge


def leader() -> Log:
    """LSN 1 is the EPOCH of life 1, then frames that end with 3, 4 and 8."""
    return Log().restart().write(2, 1, 4)


def pair() -> tuple[Log, Log]:
    """A leader, and a follower that has everything."""
    first = leader()
    return first, first.copy()


Case = tuple[Log, Log]


def equal() -> Case:
    return pair()


def some_behind() -> Case:
    upstream, follower = pair()
    return upstream.write(1, 2).restart().write(3), follower


def empty() -> Case:
    return leader(), Log(uuid=b"another uuid, 16")


def empty_and_the_beginning_released() -> Case:
    upstream = leader()
    upstream.released = 2
    return upstream, Log()


def fell_behind_and_is_remembered() -> Case:
    upstream, follower = fell_behind()
    upstream.remembers = True
    return upstream, follower


def a_clone_that_is_remembered() -> Case:
    upstream, follower = a_machine_was_cloned()
    upstream.write(2, 2)
    upstream.released, upstream.remembers = len(upstream.frames) - 1, True
    return upstream, follower


def fell_behind() -> Case:
    upstream, follower = pair()
    upstream.write(1, 1).released = 5
    return upstream, follower


def just_retained() -> Case:
    upstream, follower = pair()
    upstream.write(1).released = 4
    return upstream, follower


def upstream_is_slower() -> Case:
    upstream, follower = pair()
    upstream.following = True
    return upstream, follower.write(1)


def upstream_has_not_heard_of_a_restart() -> Case:
    upstream, follower = pair()
    upstream.following = True
    return upstream, follower.restart().write(1)


def upstream_is_empty() -> Case:
    return Log(uuid=b"another uuid, 16", following=True), leader()


def another_was_promoted() -> Case:
    upstream, follower = pair()
    return upstream.promote().write(1), follower.write(2, 2, ms=60_000).restart().write(1)


def another_was_promoted_and_has_released_the_place() -> Case:
    upstream, follower = another_was_promoted()
    upstream.released = len(upstream.frames) - 1
    return upstream, follower


def another_was_promoted_and_the_place_is_released_here() -> Case:
    upstream, follower = another_was_promoted()
    follower.released = len(follower.frames) - 1
    return upstream, follower


def another_was_promoted_inside_a_frame() -> Case:
    upstream, follower = pair()
    return upstream.repack(2).promote(), follower.write(1)


def another_was_promoted_inside_a_frame_of_its_own() -> Case:
    upstream, follower = pair()
    return upstream.promote().write(3), follower.repack(2).restart().write(1)


def power_cut() -> Case:
    upstream, follower = pair()
    return upstream.restart().write(5), follower.write(1, 1, ms=5_000)


def power_cut_after_a_long_rest() -> Case:
    upstream, follower = pair()
    return upstream.restart().write(5), follower.write(1, ms=3_600_000).write(1)


def an_older_copy_was_restored() -> Case:
    upstream, follower = pair()
    return upstream.restart().write(5), follower.write(1, 1, 1, ms=5_001)


def a_power_cut_whose_surplus_is_released() -> Case:
    upstream, follower = power_cut()
    follower.released = len(follower.frames) - 1
    return upstream, follower


def both_were_leaders() -> Case:
    upstream, follower = pair()
    return upstream.restart().write(5), follower.restart().write(1)


def both_were_promoted() -> Case:
    upstream, follower = pair()
    return upstream.promote().write(5), follower.promote().write(1)


def the_follower_was_promoted() -> Case:
    upstream, follower = pair()
    return upstream.write(5), follower.promote()


def a_machine_was_cloned() -> Case:
    upstream, follower = pair()
    return upstream.write(2), follower.write(2)


def a_clone_is_ahead() -> Case:
    upstream, follower = pair()
    return upstream, follower.write(2)


def a_clone_is_ahead_and_the_leader_restarted() -> Case:
    upstream, follower = pair()
    return upstream.write(2).restart(), follower.write(2, 1)


def restored_inside_a_frame() -> Case:
    upstream, follower = pair()
    return upstream, follower.repack(2)


def another_store() -> Case:
    return Log(uuid=b"another uuid, 16").restart(), leader()


def came_back_empty_with_the_same_uuid() -> Case:
    return Log().restart(), leader()


def promoted_before_it_received_anything() -> Case:
    return Log().promote(), leader()


def promoted_beside_a_store_of_many_lives() -> Case:
    follower = Log()
    for _ in range(LIVES_MAX):
        follower.restart()
    return Log().promote(), follower


def itself() -> Case:
    upstream = leader()
    return upstream, upstream


def thousands_of_lives(upstream: Callable[[Log], Log], more: int) -> Case:
    first, follower = pair()
    for _ in range(more):
        follower.restart()
    return upstream(first), follower


class Row(NamedTuple):
    """A row of the table: how it comes about, what happens, what happens with a person's consent (the same if None),
    and the LSN in it: the parting point, or through which a resync shares. `same`: both know that, by a checksum."""

    case: Callable[[], Case]
    reply: type[Reply]
    consent: type[Reply] | None = None
    lsn: int | None = None
    same: bool = False


# fmt: off
ROWS = (
    # the follower's log ends at a frame of the leader's
    Row(equal, Continue),
    Row(some_behind, Continue),
    Row(empty, Continue),
    Row(just_retained, Continue),
    Row(empty_and_the_beginning_released, Resync, lsn=0),
    Row(fell_behind, Resync, lsn=8),
    Row(fell_behind_and_is_remembered, Resync, lsn=8, same=True),
    # it goes on behind the end of an upstream that is a follower, too
    Row(upstream_is_slower, Behind),
    Row(upstream_has_not_heard_of_a_restart, Behind),
    Row(upstream_is_empty, Behind),
    # the leader's generation is higher
    Row(another_was_promoted, Rejoin, lsn=8),
    Row(another_was_promoted_and_has_released_the_place, Rejoin, lsn=8),
    Row(another_was_promoted_and_the_place_is_released_here, Resync, lsn=8),
    Row(lambda: thousands_of_lives(Log.promote, LIVES_MAX - 1), Rejoin, lsn=8),
    Row(lambda: thousands_of_lives(Log.promote, LIVES_MAX), Resync, lsn=0),
    # the same generation: what a power cut may take, and no more
    Row(power_cut, Rejoin, lsn=8),
    Row(power_cut_after_a_long_rest, Rejoin, lsn=8),
    Row(an_older_copy_was_restored, Stop, Rejoin, 8),
    Row(a_power_cut_whose_surplus_is_released, Stop, Resync, 8),
    Row(both_were_leaders, Stop, Rejoin, 8),
    Row(both_were_promoted, Stop, Rejoin, 8),
    Row(a_clone_is_ahead, Stop, Rejoin, 8),
    Row(lambda: thousands_of_lives(Log.restart, LIVES_MAX - 1), Stop, Rejoin, 8),
    Row(lambda: thousands_of_lives(Log.restart, LIVES_MAX), Stop, Resync),
    # the follower's generation is higher
    Row(the_follower_was_promoted, Superseded),
    # one LSN and two checksums in one life, or the parting point inside a frame
    Row(a_machine_was_cloned, Stop, Resync, 1),
    Row(a_clone_that_is_remembered, Stop, Resync, 1),
    Row(a_clone_is_ahead_and_the_leader_restarted, Stop, Resync),
    Row(restored_inside_a_frame, Stop, Resync, 1),
    Row(another_was_promoted_inside_a_frame, Stop, Resync),
    Row(another_was_promoted_inside_a_frame_of_its_own, Stop, Resync),
    # nothing is shared
    Row(another_store, Refuse, Resync),
    Row(came_back_empty_with_the_same_uuid, Stop, Resync, 0),
    Row(promoted_before_it_received_anything, Stop, Resync, 0),
    Row(promoted_beside_a_store_of_many_lives, Stop, Resync, 0),
    Row(itself, Refuse),
)
# fmt: on


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.case.__name__)
def test_the_table(row: Row) -> None:
    reply = asked(*row.case())
    assert type(reply) is row.reply, reply
    if row.lsn is not None:
        found = reply.shared if isinstance(reply, Resync) else getattr(reply, "lsn", None)
        assert found == row.lsn
    assert getattr(reply, "same", False) == row.same
    upstream, follower = row.case()
    reply = asked(upstream, follower, consent=True)
    assert type(reply) is (row.consent or row.reply)
    if isinstance(reply, Resync) and follower.frames:
        assert reply.shared <= common(upstream.frames, follower.frames)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.case.__name__)
def test_a_follower_that_needs_a_copy_gets_it_where_it_would_be_served(row: Row) -> None:
    upstream, follower = row.case()
    if not follower.frames:
        return  # it has nothing that it could not go on from
    plain = judge(upstream.upstream(), follower.follow(False))
    reply = judge(upstream.upstream(), follower.follow(False)._replace(copy=True))
    if isinstance(plain, Continue | Rejoin):
        assert isinstance(reply, Resync)
        assert reply.shared == (plain.lsn if isinstance(plain, Rejoin) else follower.last)
    else:
        assert reply == plain


# fmt: off
@pytest.mark.parametrize(("case", "following", "heir", "reply"), [
    # the heir: it follows still, or was promoted
    (equal, True, True, Unpromoted),
    (some_behind, True, True, Unpromoted),
    (another_was_promoted, False, True, Rejoin),
    (another_was_promoted, True, True, Rejoin),  # and follows another one since
    # another copy of the store
    (equal, True, False, Refuse),
    (equal, False, False, Refuse),
    (another_was_promoted, False, False, Rejoin),
    # the heir leads, but not by what it was told
    (equal, False, True, Refuse),
    (came_back_empty_with_the_same_uuid, False, True, Refuse),
    (another_store, False, True, Refuse),
    (empty, True, True, Unpromoted),
])
# fmt: on
def test_what_a_store_that_hands_over_is_told(
    case: Callable[[], Case], following: bool, heir: bool, reply: type[Reply]
) -> None:
    """It follows only a store of a higher generation, and leads again only if the heir itself says that it does not."""
    ours, theirs = case()
    ours.following = following
    upstream = ours.upstream()
    asked = theirs.follow(False)._replace(heir=upstream.id if heir else b"another's id 16b")
    assert type(judge(upstream, asked)) is reply


def test_a_stop_names_the_place_the_ends_and_the_consent() -> None:
    reply = asked(*both_were_leaders())
    assert isinstance(reply, Stop)
    assert reply.reason == (
        "the histories part behind LSN 8: the follower was a leader itself (life 2, from LSN 9). The follower has "
        "records through LSN 10, this store through LSN 14. If the follower's part is not needed, REPLICAOF host port "
        "REPLACE, or tidelog.follow with replace=True, sets it aside and follows"
    )
    reply = asked(*an_older_copy_was_restored())
    assert isinstance(reply, Stop)
    assert reply.reason == (
        "the histories part behind LSN 8, and the follower has a surplus through LSN 11: it spans 10.0 seconds, and "
        "replica-surplus-seconds is 10. The leader has records through LSN 14. If the surplus is not needed, REPLICAOF "
        "host port REPLACE, or tidelog.follow with replace=True, sets it aside and follows"
    )


def test_the_seconds_of_a_surplus_are_an_option() -> None:
    assert isinstance(asked(*an_older_copy_was_restored(), seconds_max=11), Rejoin)
    assert isinstance(asked(*power_cut(), seconds_max=1), Stop)


def test_a_checksum_alone_proves_nothing() -> None:
    """Two logs whose last frames have one LSN and, by chance, one checksum."""
    upstream, follower = both_were_promoted()
    upstream.end_at(9), follower.end_at(9)
    follower.frames[-1] = follower.frames[-1]._replace(crc=upstream.crc)
    assert isinstance(asked(upstream, follower), Stop)


def grow(rng: random.Random, family: list[Log], clones: bool = False) -> None:
    """One random thing that can happen to the stores of a family."""
    log = rng.choice(family)
    match rng.randrange(10):
        case 0 if len(family) < 6:
            # A follower, or a copied directory, which writes in a life of its own, or a clone, which does not.
            copy = log.copy(rng.randint(0, len(log.frames)))
            copy.following = rng.random() < 0.3
            if not copy.following and not (clones and copy.frames):
                copy.restart()
            family.append(copy)
        case 1 if not log.following:
            log.restart()
        case 2 if rng.random() < 0.4:
            log.promote()
        case 3 if log.frames and not log.following:
            # A power cut, or an older copy is restored, perhaps to an LSN inside a frame.
            log.frames = log.frames[: rng.randint(1, len(log.frames))]
            log.now, log.released = log.frames[-1].now, min(log.released, len(log.frames) - 1)
            if len(log.frames[-1].records) > 1 and rng.random() < 0.3:
                log.repack(rng.randint(1, len(log.frames[-1].records) - 1))
            log.restart()
        case 4 if log.frames and not clones and rng.random() < 0.3:
            log.released = rng.randint(log.released, len(log.frames) - 1)
        case 5 | 6 if log.following:
            other = rng.choice(family)
            if common(log.frames, other.frames) == log.last < other.last:
                more = other.frames[len(log.frames) :]
                log.frames = log.frames + more[: rng.randint(1, len(more))]
                log.now = log.frames[-1].now
        case _ if not log.following and log.frames:
            log.write(rng.randint(1, 4), ms=rng.choice((1, 1000, 8000)))
        case _:
            pass


def names(log: Log) -> list[int]:
    return [name for frame in log.frames for name in frame.records]


def shared_records(one: Log, other: Log) -> int:
    """The LSN through which two logs have the same records, in whatever frames."""
    pairs = zip(names(one), names(other), strict=False)
    return next((lsn for lsn, (a, b) in enumerate(pairs) if a != b), min(one.last, other.last))


def expected(upstream: Log, follower: Log) -> type[Reply]:
    """The answer of the table, found by comparing both logs frame by frame. There are no clones."""
    shared = common(upstream.frames, follower.frames)
    if shared == follower.last:
        retained = upstream.frame_at(shared) is not NoFrame.RELEASED
        return Continue if retained else Resync
    records = shared_records(upstream, follower)
    if records == follower.last and upstream.frame_at(records) is NoFrame.RELEASED:
        return Resync  # the same records, packed into other frames
    ours, theirs = generation(upstream.lives[0].number), generation(follower.lives[0].number)
    if theirs > ours:
        return Superseded
    if upstream.following and records == upstream.last:
        return Behind
    if not records:
        return Stop
    surplus = [frame for frame in follower.frames if frame.last > records]
    short = not (
        any(frame.life for frame in surplus)
        or upstream.lives[0] in follower.lives
        or follower.own(records).span_ms is None
        or surplus[-1].now - surplus[0].now > 10_000
    )
    if NoFrame.INSIDE in (upstream.frame_at(records), follower.frame_at(records)):
        return Stop
    if shared < records and upstream.frame_at(records) is not NoFrame.RELEASED != follower.frame_at(
        records
    ):
        return Stop
    if theirs == ours and not (surplus and short):
        return Stop
    return Resync if follower.frame_at(records) is NoFrame.RELEASED else Rejoin


def check(upstream: Log, follower: Log) -> type[Reply]:
    """The reply to a request, against both logs."""
    if follower.id == upstream.id or not (upstream.frames and follower.frames):
        return Refuse
    reply = asked(upstream, follower)
    assert type(reply) is expected(upstream, follower), reply
    shared = shared_records(upstream, follower)
    match reply:
        case Rejoin(lsn=lsn) | Stop(lsn=lsn):
            assert lsn <= shared
        case Resync(shared=lsn):
            assert lsn <= shared
        case _:
            pass
    converge(upstream, follower, False)
    converge(upstream, follower, True)
    return type(reply)


def converge(upstream: Log, follower: Log, consent: bool) -> None:
    """Do what the replies say. One rejoin is enough, and a person's consent overcomes every stop."""
    follower = follower.copy()
    for _ in range(2):
        reply = asked(upstream, follower, consent)
        match reply:
            case Continue():
                assert follower.frames == upstream.frames[: len(follower.frames)]
                return
            case Rejoin(lsn=lsn):
                follower.end_at(lsn)
            case Stop():
                assert not consent
                return
            case _:
                return
    raise AssertionError(f"{reply} twice")


SOAK = pytest.param(10_000, marks=pytest.mark.soak, id="soak")


@pytest.mark.parametrize("families", [*some_and_all(300, 4_000), SOAK])
def test_random_families(families: int) -> None:
    seen: set[type[Reply]] = set()
    for seed in range(families):
        rng = random.Random(seed)
        family = [leader()]
        for _ in range(rng.randint(5, 40)):
            grow(rng, family)
        for upstream in family:
            for follower in family:
                try:
                    seen.add(check(upstream, follower))
                except AssertionError:
                    print(f"seed {seed}")
                    raise
    assert seen == {Continue, Behind, Rejoin, Resync, Stop, Superseded, Refuse}


@settings(max_examples=200)
@given(st.integers(0, 1 << 32))
def test_clones_are_never_mixed(seed: int) -> None:
    """A cloned machine goes on in the life of the original: only checksums tell the two apart."""
    rng = random.Random(seed)
    family = [leader()]
    for _ in range(30):
        grow(rng, family, clones=True)
    for upstream in family:
        for follower in family:
            if follower.id == upstream.id or not (upstream.frames and follower.frames):
                continue
            shared = common(upstream.frames, follower.frames)
            reply = asked(upstream, follower)
            assert isinstance(reply, Continue) == (shared == follower.last), reply
            if isinstance(reply, Rejoin):
                assert reply.lsn == shared
            converge(upstream, follower, True)


@settings(max_examples=200)
@given(st.integers(0, 1 << 32))
def test_a_copy_replaces_nothing_that_the_leader_may_lack(seed: int) -> None:
    """Only what the reply calls the SAME is removed, and that is so, also among clones with released logs."""
    rng = random.Random(seed)
    family = [leader()]
    for _ in range(30):
        grow(rng, family, clones=True)
    for log in family:
        log.released = rng.randint(0, max(len(log.frames) - 1, 0))
        log.remembers = rng.random() < 0.5
    for upstream in family:
        for follower in family:
            for consent in (False, True):
                reply = asked(upstream, follower, consent)
                if isinstance(reply, Resync) and reply.same:
                    assert reply.shared <= common(upstream.frames, follower.frames)
