"""Stores on simulated disks, and links between them, in virtual time. Every step is chosen by a seed, none is timed.

A `Node` is one store: its disk, its clock, the process that has it open. A `Wire` is one connection from a follower to
its upstream: bytes under way in both directions, which arrive in pieces of any size. After each power cut and at the
end, `Network` checks what must hold of every store:

    the state is what a replay of its own log gives
    a life has one byte string for each LSN, whichever store has it
    what a follower acknowledged as fsynced is on its disk after a power cut
    a follower has never more than its upstream had shipped
"""

from __future__ import annotations

import random
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

from tests import inside

import tidelog
from tidelog import testing
from tidelog.aof import identity
from tidelog.aof.epochs import generation
from tidelog.aof.errors import AofError
from tidelog.aof.frame import Frame
from tidelog.aof.reading import recovery
from tidelog.aof.reading.reader import Scan, segments
from tidelog.aof.reading.recovery import TORN
from tidelog.aof.surplus import REPORT
from tidelog.api.receipts import Receipt
from tidelog.disk.simulated import SimulatedDisk
from tidelog.engine.effects.apply import applier
from tidelog.engine.effects.digest import digest
from tidelog.engine.effects.effect import EPOCH, OPCODE, Effect
from tidelog.engine.errors import CommandError
from tidelog.engine.keys.state import State
from tidelog.replication.errors import LinkError, Refused, ReplicationError
from tidelog.replication.feed import Feed
from tidelog.replication.feeds import Feeds
from tidelog.replication.follower import ERRORS, Follower
from tidelog.replication.handover import Candidate, Event, Handover
from tidelog.replication.handover import State as Stage
from tidelog.replication.handshake import parse_follow
from tidelog.store.acks import Acks
from tidelog.store.commit.durability import Promise
from tidelog.store.errors import NotStored, TidelogError, TokenLost
from tidelog.store.role import Role
from tidelog.store.tokens import Token, Verdict, look, parse

ROOT: Final = Path("/db")
SEGMENT_BYTES: Final = 6000
KEYS: Final = (b"orders", b"mails", b"text")
UNDER_WAY_MAX: Final = 64 << 10  # bytes that a feed may have under way


class Node:
    """One store, and the process that has it open.

    upstream    the node that it follows, None for a leader
    durable     the last LSN that this store has said to be fsynced, in an ACK or a reply
    """

    def __init__(self, network: Network, number: int) -> None:
        self.network = network
        self.number = number
        self.disk = SimulatedDisk(network.r.randrange(1 << 30))
        self.policy = network.r.choice(("always", "no"))
        self.clock = testing.Clock()
        self.upstream: Node | None = None
        self.durable = 0
        self.follower: Follower | None = None
        self._wire: Wire | None = None
        self.why = ""  # why the last connection ended
        self.open()

    def __repr__(self) -> str:
        return f"node {self.number}"

    @property
    def core(self) -> Any:
        return inside.core(self.db)

    @property
    def wire(self) -> Wire | None:
        """The connection to the upstream, which counts what comes over it."""
        return self._wire

    @wire.setter
    def wire(self, wire: Wire | None) -> None:
        if self._wire is not None:
            self._wire.acks.remove(self._wire.feed)
        if wire is not None:
            wire.acks.add(wire.feed)
        self._wire = wire

    @property
    def last(self) -> int:
        found: int = self.core.log.written_lsn
        return found

    @property
    def generation(self) -> int:
        """Of the newest life in its log."""
        lives = self.core.checkpoints.epochs
        return generation(lives[-1].number) if lives else -1

    def open(self) -> None:
        self.db = tidelog.open(
            ROOT,
            disk=self.disk,
            fsync=self.policy,
            clock=self.clock,
            segment_bytes=SEGMENT_BYTES,
            checkpoint_bytes=0,
            save=(),
        )
        self.wire = None
        self.feeds = Feeds(self.core)
        self.follower = None if self.core.following is None else self._followed()
        self.handover: HandingOver | None = None
        self.promotion: Promotion | None = None
        if self.role.hands_over:
            self.upstream = self.network.nodes[self.role.port - 1]

    @property
    def role(self) -> Role:
        """By its file REPLICA."""
        found: Role = self.core.roles.role
        return found

    @property
    def hands_over(self) -> bool:
        """Whether it takes part in a handover, on either side."""
        return bool(self.promotion or self.handover) or self.role.hands_over

    @property
    def takes_writes(self) -> bool:
        """Whether a write would be logged."""
        return self.core.refusal is None

    def follow(self, upstream: Node, consent: bool = False) -> None:
        if self.core.following is None:
            self.hang_up("a follower now")
        self.core.roles.follow("leader", 1 + upstream.number, consent=consent)
        self.upstream = upstream
        self.wire = None
        self.follower = self._followed()

    def _followed(self) -> Follower:
        return Follower(self.core, surplus_s=lambda: self.network.surplus_s)

    def promote(self) -> None:
        self.hang_up("promoted")
        self.core.roles.promote()
        self.upstream = self.follower = None

    def hang_up(self, why: str) -> None:
        """End the connection to the upstream, and those of all who are connected to this node."""
        for node in self.network.nodes:
            wire = node.wire
            if wire is not None and (node is self or wire.upstream is self):
                node.lose_wire(why)

    def lose_wire(self, why: str) -> None:
        """The connection to the upstream is gone, with the bytes that are under way in it."""
        if self.wire is not None:
            self.wire.cut = True
        self.wire, self.why = None, why

    def kill(self) -> None:
        """SIGKILL: what the kernel has stays. Then the process starts again."""
        self.hang_up("killed")
        self.core.keeper.let_go()
        self.disk = self.disk.killed()
        self.open()

    def power_cut(self) -> None:
        self.hang_up("power cut")
        self.core.keeper.let_go()
        self.disk = self.disk.power_loss(self.network.r)
        self.open()
        assert self.last >= self.durable, "what was said to be on the disk is gone"

    def rejoin(self) -> None:
        """Do what the upstream's last reply asked for. Everything is in the log or set aside afterwards."""
        assert self.follower is not None
        before, last = self.all_frames(), self.last
        self.follower.rejoin()
        self.network.counts["rejoin"] += 1
        assert self.last < last
        self.check()
        assert self.all_frames() == before
        self.durable = min(self.durable, self.last)
        # Its feeds are at places of another history, and end with their next read.
        self.hang_up("rewound")

    # --- what is checked

    def all_frames(self) -> set[bytes]:
        """The frames in the log and in quarantine/."""
        found = set(self.frames().values())
        aside = ROOT / identity.QUARANTINE
        if self.disk.exists(aside):
            for name in self.disk.listdir(aside):
                if name.endswith(TORN):
                    continue
                assert REPORT in self.disk.listdir(aside / name) or not segments(
                    self.disk, aside / name
                )
                found.update(framed for _, framed in frames_in(self.disk, aside / name))
        return found

    def frames(self) -> dict[tuple[int, int], bytes]:
        """The header of each frame in the log, by its life's incarnation and its first LSN."""
        found: dict[tuple[int, int], bytes] = {}
        life = 0
        core = self.core
        with core.lock:
            core.log.flush()
        for frame, framed in frames_in(self.disk, ROOT / identity.AOF):
            record = first_record(frame.body)
            if record[0] & OPCODE == EPOCH:
                life = record[2]
            found[life, frame.lsn] = framed
        return found

    def records(self) -> Callable[[Token], bool]:
        """Whether the log has a record of this life with this LSN, by the log's own frames."""
        ends = {lsn: life for life, lsn in self.frames()}
        firsts = sorted(ends)
        last = self.last

        def has(token: Token) -> bool:
            at = bisect_right(firsts, token.lsn) - 1
            return token.lsn <= last and at >= 0 and ends[firsts[at]] == token.incarnation

        return has

    def check(self) -> None:
        core = self.core
        with core.lock:
            if core.trouble is not None:
                core.mend()
            core.log.flush()
        state = State()
        recovery.read_all(
            self.disk, ROOT / identity.AOF, core.roles.uuid, applier(state), live=True
        )
        assert digest(state) == digest(core.state), f"{self}: memory is not what its log says"


def frames_in(disk: SimulatedDisk, directory: Path) -> Iterator[tuple[Frame, bytes]]:
    """Each frame in the segments of a directory, and its bytes in short."""
    for info in segments(disk, directory):
        for frame in Scan(disk, info, live=True).frames():
            yield frame, b"%d %d %d " % (frame.count, frame.now, frame.crc) + frame.body


def first_record(body: bytes) -> Effect:
    import msgpack

    unpacker = msgpack.Unpacker(use_list=False, strict_map_key=False)
    unpacker.feed(body)
    record: Effect = unpacker.unpack()
    return record


class Wire:
    """One connection: bytes that were sent and have not arrived."""

    def __init__(self, node: Node, upstream: Node, feed: Feed) -> None:
        self.node, self.upstream, self.feed = node, upstream, feed
        self.cut = False
        self.acks: Acks = upstream.core.acks
        self.down = bytearray()  # to the follower
        self.up = bytearray()


class Promotion(NamedTuple):
    """A thread of a follower that was told to lead, before it runs."""

    run: Callable[[], bytes]
    wire: Wire


class HandingOver:
    """FAILOVER of one node, as its server does it."""

    def __init__(self, last: int, heir: Node) -> None:
        self.heir = heir
        self.states = Handover(last, bytes.fromhex(heir.role.id))
        self.wire: Wire | None = None  # over which PROMOTE was sent


class Network:
    """All nodes. `counts` tells what happened, so that a test can see that it did."""

    def __init__(self, seed: int, nodes: int) -> None:
        self.r = random.Random(seed)
        self.counts: Counter[str] = Counter()
        self.seconds = 0.0
        self.surplus_s = 10.0
        self.unconfirmed: list[tuple[Promise, Token]] = []
        self.confirmed: list[Token] = []
        self.written: list[Token] = []
        self.nodes: list[Node] = []
        for number in range(nodes):
            self.nodes.append(Node(self, number))

    def close(self) -> None:
        for node in self.nodes:
            node.hang_up("closed")
            node.db.close()

    # --- time

    def pass_time(self, seconds: float) -> None:
        self.seconds += seconds
        for node in self.nodes:
            node.clock.advance(seconds)

    # --- links

    def dial(self, node: Node) -> None:
        """Connect a follower to its upstream."""
        follower, upstream = node.follower, node.upstream
        assert follower is not None and upstream is not None
        self.counts["dial"] += 1
        try:
            request = parse_follow(follower.hello())
            line, feed = upstream.feeds.answer(request, self.seconds)
            follower.answered(line, self.seconds)
        except LinkError as error:
            node.why = str(error)
            if follower.heir_leads is not None:
                self._settle_role(node, follower)
            elif follower.parted is not None:
                self._rejoin(node)
            else:
                self.counts["refused"] += 1
            return
        assert feed is not None
        node.wire = Wire(node, upstream, feed)

    def _settle_role(self, node: Node, follower: Follower) -> None:
        """The heir has answered."""
        self.counts["heir leads" if follower.heir_leads else "heir declines"] += 1
        follower.settle()
        if not node.role.follows:
            node.follower = node.upstream = None

    def _rejoin(self, node: Node) -> None:
        try:
            node.rejoin()
        except Refused as error:
            node.why = str(error)
            self.counts["stopped"] += 1

    def move(self, node: Node) -> None:
        """Let one thing happen on a follower's connection."""
        wire, follower = node.wire, node.follower
        assert wire is not None and follower is not None
        try:
            self.r.choice((self._send, self._arrive, self._work, self._acknowledge))(wire, follower)
        except ERRORS as error:
            self.counts[type(error).__name__] += 1
            node.hang_up(str(error)) if isinstance(error, TidelogError) else node.lose_wire(
                str(error)
            )

    def _send(self, wire: Wire, follower: Follower) -> None:
        room = UNDER_WAY_MAX - len(wire.down)
        end = wire.upstream.feeds.end()
        wire.down += wire.feed.send(self.seconds, *end, room)

    def _arrive(self, wire: Wire, follower: Follower) -> None:
        """A piece of any size reaches one side."""
        if wire.down and self.r.random() < 0.7:
            size = self.r.choice((1, 7, 100, 5000, len(wire.down)))
            data, wire.down[:size] = bytes(wire.down[:size]), b""
            follower.receive(data, self.seconds)
        elif wire.up:
            size = self.r.choice((1, 9, len(wire.up)))
            data, wire.up[:size] = bytes(wire.up[:size]), b""
            wire.feed.receive(data, self.seconds)
            assert wire.feed.acked_lsn <= wire.upstream.last

    def _work(self, wire: Wire, follower: Follower) -> None:
        follower.work(self.r.choice((0.0, 1.0)), self.seconds)
        if follower.told_to_lead and wire.node.promotion is None:
            wire.node.promotion = Promotion(follower.promotion(), wire)

    def _acknowledge(self, wire: Wire, follower: Follower) -> None:
        if self.r.random() < 0.3:
            wire.node.core.log.sync_through(wire.node.core.log.written_lsn)
        said = follower.send(self.seconds)
        if said:
            wire.up += said
            wire.node.durable = max(wire.node.durable, wire.node.core.log.synced_lsn)

    def settle(self, node: Node, steps: int = 400) -> bool:
        """Let a follower catch up with its upstream. Returns whether it did."""
        for _ in range(steps):
            assert node.upstream is not None
            if node.wire is None:
                rejoined = self.counts["rejoin"]
                self.dial(node)
                if node.wire is None:
                    if self.counts["rejoin"] > rejoined:
                        continue
                    return False
            wire, follower = node.wire, node.follower
            assert follower is not None
            try:
                self._send(wire, follower)
                data, wire.down[:] = bytes(wire.down), b""
                if data:
                    follower.receive(data, self.seconds)
                while follower.work(1.0, self.seconds):
                    pass
                node.core.log.sync_through(node.last)  # the shell does that under `always`
                wire.up += follower.send(self.seconds)
                data, wire.up[:] = bytes(wire.up), b""
                wire.feed.receive(data, self.seconds)
            except (ReplicationError, AofError) as error:
                node.lose_wire(str(error))
                continue
            if node.last == node.upstream.last:
                return True
            self.pass_time(0.001)
        return False

    # --- handing over

    def begin_handover(self, node: Node, heir: Node) -> None:
        """FAILOVER TO heir."""
        if heir.wire is not None and heir.wire.upstream is node and node.handover is None:
            node.handover = HandingOver(node.core.roles.suspend(), heir)
            self.counts["failover"] += 1

    def go_on(self, node: Node) -> None:
        """Let one thing happen to a handover, on either side."""
        if node.promotion is not None:
            self._promote(node)
        elif node.handover is not None:
            self._hand_over(node, node.handover)
        elif node.role.hands_over:
            self.dial(node)

    def _hand_over(self, node: Node, handing: HandingOver) -> None:
        states, heir, roles = handing.states, handing.heir, node.core.roles
        match states.state:
            case Stage.WAITING:
                if self.r.random() < 0.01:
                    states.abort()
                else:
                    states.look([*self._candidates(node)], self.seconds)
            case Stage.STATING:
                assert states.heir is not None
                generation = roles.hand_over(states.heir.id, "heir", states.heir.port, "a test")
                node.upstream, node.follower = heir, node._followed()
                wire = handing.wire = heir.wire
                if wire is None or wire.upstream is not node:
                    states.happened(Event.NOT_TOLD, "the follower's link is gone")
                else:
                    states.happened(Event.STATED)
                    wire.down += wire.feed.tell_to_lead(states.promote(generation))
                    self.counts["told"] += 1
            case Stage.TOLD:
                wire = handing.wire
                assert wire is not None
                data, wire.up[:] = bytes(wire.up), b""
                wire.feed.receive(data, self.seconds)
                if wire.feed.promoted is not None:
                    states.happened(Event.PROMOTED)
                    roles.handed_over(node.role, "a test")
                    self.counts["handed over"] += 1
                elif wire.cut:
                    states.happened(Event.LOST)
            case Stage.RETURNING:
                roles.release()
                if states.heir is not None and node.role.heir == states.heir.id.hex():
                    roles.take_back(node.role, "a test")
                    node.upstream = node.follower = None
                    self.counts["taken back"] += 1
                states.happened(Event.RETURNED)
                self.counts["aborted"] += 1
        if states.state in (Stage.ABORTED, Stage.HANDED_OVER, Stage.UNKNOWN):
            node.handover = None

    def _candidates(self, node: Node) -> Iterator[Candidate]:
        for other in self.nodes:
            wire = other.wire
            if wire is not None and wire.upstream is node:
                id_, port = bytes.fromhex(other.role.id), 1 + other.number
                yield Candidate(id_, "heir", port, wire.feed.acked_lsn, wire.feed.fsynced_lsn)

    def _promote(self, node: Node) -> None:
        """The thread of a follower that was told to lead runs."""
        assert node.promotion is not None
        run, wire = node.promotion
        node.promotion = None
        try:
            answer = run()
        except NotStored:
            self.counts["declined"] += 1
            if node.wire is wire:
                node.lose_wire("not promoted")
            return
        node.follower = node.upstream = None
        if self.r.random() < 0.3:
            wire.cut = True
        if not wire.cut:
            wire.up += answer  # it arrives, and then the connection ends
        if node.wire is wire:
            node.wire = None
        else:
            node.lose_wire("promoted")

    # --- commands

    def write(self, node: Node) -> None:
        """One random command on a leader."""
        r = self.r
        key = r.choice(KEYS)
        ids = [entry[0] for entry in self.run(node, b"XRANGE", key, b"-", b"+") or []]
        some = r.sample(ids, min(len(ids), r.choice((1, 3, 20))))
        choices: list[tuple[bytes, ...]] = [
            *[
                (
                    b"XADD",
                    key,
                    b"*",
                    b"n",
                    b"%d" % r.randrange(100),
                    b"x",
                    bytes(r.choice((1, 80, 900))),
                )
            ]
            * 4,
            (b"XGROUP", b"CREATE", key, b"g", b"0", b"MKSTREAM"),
            (
                b"XREADGROUP",
                b"GROUP",
                b"g",
                r.choice((b"ann", b"bob")),
                b"COUNT",
                b"5",
                b"STREAMS",
                key,
                b">",
            ),
            (b"XTRIM", key, b"MAXLEN", b"%d" % r.choice((0, 5, 30))),
            (b"SET", b"name", b"%d" % r.randrange(9), b"PX", b"%d" % r.choice((1, 400, 90_000))),
            (b"PEXPIRE", key, b"%d" % r.choice((1, 500, 100_000))),
            (b"DEL", b"name"),
        ]
        if some:
            choices += [(b"XACK", key, b"g", *some), (b"XDEL", key, *some)]
            choices += [(b"XCLAIM", key, b"g", b"ann", b"0", *some)]
        self.run(node, *r.choice(choices))
        if node.policy == "always":
            node.core.log.wait(node.core.log.next_lsn - 1, 2)
            node.durable = max(node.durable, node.core.log.synced_lsn)
        self.counts["write"] += 1

    def run(self, node: Node, *args: bytes) -> Any:
        reply = node.core.command(0, list(args))[0]
        if isinstance(reply, CommandError):
            return None
        if hasattr(reply, "pairs"):
            return [(b"%d-%d" % (each >> 64, each & (1 << 64) - 1), row) for each, row in reply]
        return reply

    # --- what is confirmed, and tokens

    def write_and_note(self, node: Node) -> None:
        """A random command on a leader. If it wrote, its token is noted."""
        before = node.core.log.next_lsn
        self.write(node)
        log = node.core.log
        if log.next_lsn > before:
            promise = log, log.next_lsn - 1, True
            token = parse(Receipt(node.core.acks, promise).token)
            self.unconfirmed.append((promise, token))
            self.written.append(token)

    def note_confirmed(self, node: Node, fsynced: bool) -> None:
        """Note which writes `node` would have confirmed by now at the level `replicated`."""
        acks, left = node.core.acks, []
        for promise, token in self.unconfirmed:
            if acks.count(*promise[:2], fsynced):
                self.confirmed.append(token)
                self.counts["confirmed"] += 1
            else:
                left.append((promise, token))
        self.unconfirmed = left

    def check_tokens(self, node: Node) -> Counter[Verdict]:
        """No token lies: "here" is in the log, and neither "coming" nor "lost" is."""
        has, told = node.records(), Counter[Verdict]()
        for token in self.written:
            try:
                found = look(node.core, token)
            except TokenLost:
                found = Verdict.LOST
            assert (found is Verdict.HERE) == has(token), (node, str(token), found)
            told[found] += 1
        return told

    # --- what holds of all

    def check(self) -> None:
        """Each store is what its log says, and stores that share a life share its bytes."""
        known: dict[tuple[int, int], bytes] = {}
        for node in self.nodes:
            node.check()
            for place, frame in node.frames().items():
                assert known.setdefault(place, frame) == frame, (node, place)

    def step(self, ways: list[tuple[float, Callable[[], object]]]) -> None:
        """One of several things, by their weights."""
        (way,) = self.r.choices([way for _, way in ways], [weight for weight, _ in ways])
        way()
