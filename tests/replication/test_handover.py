"""Handover: its states, and what passes between a leader and the follower that it tells to lead."""

from __future__ import annotations

import itertools
import random
from pathlib import Path

import pytest
from tests import inside
from tests.replication.stores import last_lsn, shipped
from tests.store.following.leader import roles

import tidelog
from tidelog.aof.epochs import generation
from tidelog.disk.simulated import SimulatedDisk
from tidelog.replication.errors import LinkError, ProtocolError
from tidelog.replication.feed import Feed
from tidelog.replication.feeds import Feeds
from tidelog.replication.follower import ERRORS, Follower
from tidelog.replication.handover import (
    OUT_OF_HAND,
    SHOWN,
    TRANSITIONS,
    Candidate,
    Event,
    Handover,
    State,
    TooLate,
)
from tidelog.replication.handshake import parse_follow
from tidelog.replication.protocol import FROM_FOLLOWER, Messages, Promote, Promoted
from tidelog.store.lifetime import Keeper

ONE, TWO = b"1" * 16, b"2" * 16


def at(id_: bytes, written: int, fsynced: int = 0) -> Candidate:
    return Candidate(id_, "host", 1, written, fsynced)


# --- states


def test_every_state_is_reached_and_three_are_the_end() -> None:
    states = set(State)
    ends = {State.HANDED_OVER, State.UNKNOWN, State.ABORTED}
    assert {before for before, _ in TRANSITIONS} == states - ends
    assert {State.WAITING, *TRANSITIONS.values()} == states == set(SHOWN)
    assert {event for _, event in TRANSITIONS} == set(Event)


def test_once_the_follower_was_told_nothing_leads_back_here() -> None:
    """Only the follower can say that it does not lead, and that is not for this table."""
    for state in OUT_OF_HAND:
        reached = {state}
        while True:
            more = {after for (before, _), after in TRANSITIONS.items() if before in reached}
            if more <= reached:
                break
            reached |= more
        assert State.ABORTED not in reached
        assert (state, Event.ABORT) not in TRANSITIONS


def test_before_the_follower_was_told_everything_leads_back_here() -> None:
    """An abort is taken in each of these states, and whatever else fails has a way to ABORTED that tells nobody."""
    early = set(State) - OUT_OF_HAND - {State.HANDED_OVER, State.ABORTED}
    for state in early:
        assert TRANSITIONS[state, Event.ABORT] in early
        handover = Handover(9)
        handover.state = state
        handover.abort()
        if handover.state is State.WITHDRAWN:
            handover.happened(Event.NOT_TOLD)
        handover.happened(Event.RETURNED)
        assert (handover.state, handover.why) == (State.ABORTED, "FAILOVER ABORT")
    assert {after for (before, _), after in TRANSITIONS.items() if before is State.WITHDRAWN} == {
        State.WITHDRAWN,
        State.RETURNING,
    }


def test_it_is_stated_before_anyone_is_told() -> None:
    told = {before for (before, _), after in TRANSITIONS.items() if after is State.TOLD}
    assert told == {State.STATING}
    for state, event in itertools.product(State, Event):
        handover = Handover(9)
        handover.state = state
        if (state, event) in TRANSITIONS:
            handover.happened(event)
            assert handover.state is TRANSITIONS[state, event]
        else:
            with pytest.raises(KeyError):
                handover.happened(event)


def test_it_is_too_late_to_abort_what_has_ended_or_is_out_of_hand() -> None:
    for state in (*OUT_OF_HAND, State.HANDED_OVER, State.ABORTED):
        handover = Handover(9)
        handover.state = state
        with pytest.raises(TooLate):
            handover.abort()


def test_the_first_follower_that_has_everything_is_chosen() -> None:
    handover = Handover(9)
    assert handover.look([], 0.0) is State.WAITING
    assert handover.look([at(ONE, 8), at(TWO, 7)], 1e9) is State.WAITING
    assert handover.look([at(ONE, 9, 3), at(TWO, 9, 9)], 0.0) is State.STATING
    assert handover.heir == at(TWO, 9, 9)  # of those, the one that has fsynced most
    handover.happened(Event.STATED)
    assert handover.promote(4) == Promote(9, 4)


def test_only_the_target_is_waited_for() -> None:
    handover = Handover(9, TWO)
    assert handover.look([at(ONE, 9)], 0.0) is State.WAITING
    assert handover.look([at(ONE, 9), at(TWO, 9)], 0.0) is State.STATING
    assert handover.heir == at(TWO, 9)


def test_the_time_is_up() -> None:
    handover = Handover(9, None, 5.0)
    assert handover.look([at(ONE, 8)], 4.9) is State.WAITING
    assert handover.look([at(ONE, 8)], 5.0) is State.RETURNING
    assert "in time" in handover.why
    handover = Handover(9, None, 5.0)
    assert handover.look([at(ONE, 9)], 5.0) is State.STATING
    assert handover.look([at(ONE, 9)], 5.1) is State.WITHDRAWN  # the disk was too slow
    assert "in time" in handover.why


def test_force_tells_a_follower_that_lacks_something() -> None:
    handover = Handover(9, TWO, 5.0, force=True)
    assert handover.look([at(ONE, 9), at(TWO, 4)], 4.9) is State.WAITING
    assert handover.look([at(ONE, 9), at(TWO, 4)], 5.0) is State.STATING
    assert handover.look([at(ONE, 9), at(TWO, 4)], 9.0) is State.STATING
    handover.happened(Event.STATED)
    assert handover.promote(1) == Promote(0, 1)
    away = Handover(9, TWO, 5.0, force=True)
    assert away.look([at(ONE, 9)], 5.0) is State.RETURNING


# --- a leader and its follower


class Two:
    """A leader with some records, and a follower that has received them, on simulated disks."""

    def __init__(self, policy: str = "always") -> None:
        self.policy = policy
        self.disks = {"leader": SimulatedDisk(), "copy": SimulatedDisk()}
        self.leader = self.open("leader")
        self.copy = self.open("copy")
        for number in range(20):
            self.leader.xadd("orders", {"n": number})
        roles(self.copy).follow("leader", 1)
        self.follower = Follower(inside.core(self.copy))
        self.feed = self.connect()

    def open(self, name: str) -> tidelog.Store:
        return tidelog.open(Path(f"/{name}"), fsync=self.policy, disk=self.disks[name])

    def lose_power(self, name: str, seed: int) -> tidelog.Store:
        self.disks[name] = self.disks[name].power_loss(random.Random(seed))
        return self.open(name)

    def connect(self) -> Feed:
        self.feeds = Feeds(inside.core(self.leader))
        line, feed = self.feeds.answer(parse_follow(self.follower.hello()), 0.0)
        self.follower.answered(line, 0.0)
        assert feed is not None
        self.pass_on(shipped(self.feeds, feed, 0.0))
        return feed

    def pass_on(self, data: bytes) -> None:
        self.follower.receive(data, 0.0)
        while self.follower.work(1.0, 0.0):
            pass

    def state(self) -> int:
        """The leader states that it hands over."""
        there = roles(self.leader)
        there.suspend()
        heir = bytes.fromhex(self.copy.role().id)
        return there.hand_over(heir, "copy", 1, "by a test")

    def tell(self, lsn: int | None = None) -> None:
        """The leader states that it hands over, and PROMOTE reaches the follower."""
        generation = self.state()
        must_have = last_lsn(self.leader) if lsn is None else lsn
        self.pass_on(self.feed.tell_to_lead(Promote(must_have, generation)))

    def ask(self) -> Follower:
        """The old leader asks its heir how it ended."""
        asking = Follower(inside.core(self.leader))
        line, _ = Feeds(inside.core(self.copy)).answer(parse_follow(asking.hello()), 0.0)
        with pytest.raises(LinkError):
            asking.answered(line, 0.0)
        return asking


def test_a_follower_that_is_told_leads_and_says_so() -> None:
    two = Two()
    last = last_lsn(two.leader)
    two.tell()
    assert two.follower.told_to_lead
    answer = two.follower.promotion()()
    assert two.copy.role().kind == "leader" and two.copy.role().reason == "leader:1 handed over"
    messages = Messages(FROM_FOLLOWER)
    messages.put(answer)
    assert list(messages) == [Promoted(1 << 32, last + 1)]
    two.feed.receive(answer, 0.0)
    assert two.feed.promoted == Promoted(1 << 32, last + 1)
    two.copy.xadd("orders", {"n": 20})


@pytest.mark.parametrize("policy", ["always", "no"])
def test_what_a_follower_had_is_on_its_disk_when_it_answers(policy: str) -> None:
    two = Two(policy)
    two.tell()
    two.follower.promotion()()
    for seed in range(20):
        with two.lose_power("copy", seed) as copy:
            assert copy.role().kind == "leader" and copy.xlen("orders") == 20
            assert generation(inside.checkpoints(copy).epochs[-1].number) == 1


def test_a_follower_that_lacks_records_does_not_lead() -> None:
    two = Two()
    two.tell(last_lsn(two.leader) + 1)
    with pytest.raises(LinkError, match="but it has them only through LSN 21"):
        two.follower.promotion()
    assert two.copy.role().kind == "follower"


def test_nothing_but_signs_of_life_follow_a_promote() -> None:
    two = Two()
    two.tell()
    assert b"" == two.feed.send(0.5, 0, *_rest(two), 1 << 20)
    with pytest.raises(ProtocolError, match="goes on behind its PROMOTE"):
        two.follower.receive(Promote(0, 1).pack(), 0.0)


def _rest(two: Two) -> tuple[tuple[int, int], tuple[int, int], int]:
    end = two.feeds.end()
    return end.place, end.last, end.good


def test_a_leader_believes_no_promoted_that_it_did_not_ask_for() -> None:
    two = Two()
    with pytest.raises(ProtocolError, match="it was not told to"):
        two.feed.receive(Promoted(1 << 32, 9).pack(), 0.0)


def test_a_heir_that_leads_is_followed() -> None:
    two = Two()
    two.tell()
    two.follower.promotion()()  # PROMOTED is lost
    asking = two.ask()
    assert asking.heir_leads is True
    asking.settle()
    assert two.leader.role()[:4] == ("follower", two.leader.role().id, "copy", 1)


def test_a_heir_that_was_not_told_declines_and_is_not_promoted_afterwards() -> None:
    """PROMOTE is on the way, in a connection that the old leader has given up already."""
    two = Two()
    two.tell()
    promotion = two.follower.promotion()  # it is about to begin
    asking = two.ask()
    assert asking.heir_leads is False
    asking.settle()
    assert two.leader.role().kind == "leader" and two.leader.xadd("orders", {"n": 20})
    with pytest.raises(tidelog.NotStored):
        promotion()
    assert two.copy.role().kind == "follower"
    with pytest.raises(tidelog.ReadOnlyError):
        two.copy.xadd("orders", {"n": 20})


def test_only_a_store_that_hands_over_is_told_that_its_heir_declines() -> None:
    two = Two()
    with pytest.raises(ProtocolError, match="was not asked that"):
        two.follower.answered(b"+UNPROMOTED %s 9\r\n" % (b"0" * 32), 0.0)
    two.state()
    asking = Follower(inside.core(two.leader))
    asking.hello()
    with pytest.raises(LinkError):
        asking.answered(b"-REFUSED not the heir\r\n", 0.0)
    assert asking.heir_leads is None
    asking.settle()
    assert two.leader.role().hands_over


@pytest.mark.parametrize("victim", ["leader", "copy"])
def test_a_power_cut_at_every_operation(victim: str) -> None:
    """Of the stating, or of the promotion. Afterwards the old leader asks, and one of both takes writes."""
    for cut_at in itertools.count():
        two = Two()
        left = [cut_at]

        def cut(operation: str, path: object, left: list[int] = left) -> None:
            left[0] -= 1
            if left[0] < 0:
                raise PowerCut

        finished = False
        try:
            if victim == "leader":
                two.disks["leader"].before = cut
            generation = two.state()
            two.disks["leader"].before = None
            two.pass_on(two.feed.tell_to_lead(Promote(last_lsn(two.leader), generation)))
            if victim == "copy":
                two.disks["copy"].before = cut
            two.follower.promotion()()
            finished = True
        except PowerCut:
            pass
        two.disks[victim].before = None
        keeper = inside.core(getattr(two, victim)).keeper
        assert isinstance(keeper, Keeper)
        keeper.let_go()
        setattr(two, victim, two.lose_power(victim, cut_at))
        leads = [db for db in (two.leader, two.copy) if not db.role().follows]
        assert len(leads) <= 1
        if two.leader.role().hands_over:
            two.ask().settle()
        leads = [db for db in (two.leader, two.copy) if not db.role().follows]
        assert len(leads) == 1
        assert leads[0].xlen("orders") == 20 and leads[0].xadd("orders", {"n": 20})
        if finished:
            assert cut_at > 5
            break


class PowerCut(BaseException):
    """Nothing is written any more."""


def test_these_errors_end_a_connection() -> None:
    assert issubclass(TooLate, ERRORS)
