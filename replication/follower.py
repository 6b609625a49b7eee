"""Follower: what a follower says to its leader and does with what it hears. Bytes in, bytes out: no sockets.

For each connection, its shell (replication/link.py)

    sends     `hello()`, the words of TIDELOG FOLLOW
    passes    the line of the reply to `answered`, and everything after it to `receive`
    calls     `work` until it returns False: it appends and applies whole frames for a short time
    sends     `send()`, the acknowledgements, after each `work` and some times a second

Every method may raise one of ERRORS. Then the connection is over. The shell calls `rejoin`, in a thread, if `parted` is
set, and makes a new connection.

If `told_to_lead` is set after `work`, the shell calls what `promotion` returns in a thread, and sends the result as the
last bytes of the connection.

A store that has told another one to lead asks that one, over a link of this kind, how that ended. The shell calls
`settle`, in a thread, if `heir_leads` is set.

If `resyncing` is set after `answered`, the bytes of this connection are for it, and a thread calls `resync`. Then a new
connection gets the frames behind the copy.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from time import perf_counter
from typing import Final

from tidelog.aof.errors import AofError, BadFrame
from tidelog.aof.received import Batch
from tidelog.replication.errors import (
    Different,
    LinkError,
    Parted,
    ProtocolError,
    Refused,
    ReplicationError,
)
from tidelog.replication.handshake import (
    Behind,
    Continue,
    Follow,
    Refuse,
    Rejoin,
    Reply,
    Resync,
    Unpromoted,
    parse_reply,
)
from tidelog.replication.intake import Intake
from tidelog.replication.protocol import Fault, Promoted
from tidelog.replication.rejoin import SURPLUS_S, rejoin
from tidelog.replication.resync import Resyncing
from tidelog.snapshot import swap
from tidelog.store.commit.attached import Receiving
from tidelog.store.commit.core import Core
from tidelog.store.errors import OutOfSpace, TidelogError
from tidelog.store.role import Role

WORK_BYTES: Final = 16 << 10  # of frames applied between two looks at the clock
MESSAGE_S: Final = 66.0  # the longest message takes so long at 1 KB/s
STUBBORN: Final = 3  # this number of bad frames at one LSN is no accident

# All that can end a connection.
ERRORS: Final = (ReplicationError, TidelogError, AofError, OSError)

_logger = logging.getLogger("tidelog.replication")


class Follower:
    """A store that follows, over any number of connections, one after the other.

    leader_lsn     the leader's last LSN, as of its last sign of life
    target         the leader's last LSN at the first handshake; None before it
    caught_up      whether this store has had everything that the leader had at that time. Until then a store that was
                   empty is still loading
    heard_at       when something last came from the leader
    even_at        when this store last had everything that its leader had; before that, when it was first accepted
    frames_bytes   bytes of frames that were applied
    stalled        why `work` waits although frames are there: a full disk, or memory over its budget; "" = it does not
    parted         the leader's last reply, if that was REJOIN
    heir_leads     the last reply of the store that this one has told to lead: whether it does; None if it did not say
    told_to_lead   the leader has told this store to lead, and it has everything that came before
    resyncing      the copy that this store is getting, if the leader's last reply was RESYNC
    """

    def __init__(
        self,
        core: Core,
        announced: Callable[[], tuple[str, int]] = lambda: ("", 0),
        surplus_s: Callable[[], float] = lambda: SURPLUS_S,
        compress: Callable[[], bool] = lambda: False,
    ) -> None:
        """`surplus_s`: see `rejoin.rejoin`. `compress`: whether the leader may compress what it sends.

        announced   host and port where this store serves clients. "": as the leader sees it; port 0: nowhere
        """
        self.leader_lsn = 0
        self.target: int | None = None
        self.caught_up = core.log.next_lsn > 1
        self.heard_at = self.even_at = 0.0
        self.frames_bytes = 0
        self.stalled = ""
        self.parted: Rejoin | None = None
        self.heir_leads: bool | None = None
        self.told_to_lead = False
        self.resyncing: Resyncing | None = None
        self._core = core
        assert core.roles is not None  # a store that is open read-only cannot follow
        self._roles = core.roles
        self._announced, self._surplus_s = announced, surplus_s
        self._may_compress, self._compress = compress, False  # now, and as the leader was told
        self._intake: Intake | None = None
        self._batch: Batch | None = None  # taken, and not applied yet
        self._full_disk = False  # `stalled` for that reason, and the log says so
        self._whole_at = 0.0  # when the last whole message came
        self._timed = False  # the leader's time was told, over this connection
        # The end of what the leader sent and this store has applied. The log may go on behind it: after a promotion, it
        # is a leader's, and none of that may be acknowledged.
        self._last = 0, 0
        self._acked = -1, -1
        self._role = self._roles.role  # as of the newest `hello`
        self._declined = 0  # `Roles.declined` at that time
        self._bad = 0, 0  # LSN, and how often in a row a frame there was refused
        self._copied: Role | None = (
            None  # in this role it has found that only a copy of the leader's data helps
        )

    @property
    def following(self) -> Receiving:
        """Raises LinkError if the store is a leader by now."""
        following = self._core.following
        if following is None:
            raise LinkError("this store has become a leader")
        return following

    # --- the handshake

    def check(self) -> None:
        """Raise Refused if nothing more may be received: the log of this store has failed, or the data differs from the
        leader's and nobody has decided what comes next."""
        log = self._core.log
        if log.failure is not None and not log.in_doubt:
            raise Refused(
                f"the disk of this store has failed ({log.failure}): nothing more is received or acknowledged. Close "
                "the store and open it again"
            )
        if self._roles.differs is not None and not self._roles.consent:
            raise Refused(str(self._roles.differs))

    def hello(self) -> list[bytes]:
        """The words that ask the leader for its frames. A connection begins."""
        self._intake = self._batch = self.parted = self.resyncing = self.heir_leads = None
        self.told_to_lead = self._timed = False
        following, roles = self.following, self._roles
        self._role, self._declined = roles.role, roles.declined
        lsn, crc = self._last = following.last
        id_, heir = bytes.fromhex(self._role.id), bytes.fromhex(self._role.heir)
        lives = tuple(following.lives())
        host, port = self._announced()
        copy = bool(lsn) and (self._copied == self._role or roles.differs is not None)
        self._compress = compress = self._may_compress()
        log, consent = (port, lsn, crc, lives), roles.consent
        asked = Follow(roles.uuid, id_, *log, consent, host, copy, heir, compress)
        return asked.words()

    def answered(self, line: bytes, now: float) -> None:
        """The leader's reply. Raises Refused if it sends nothing, LinkError if `rejoin` is to be called."""
        reply = parse_reply(line)
        if self._role.hands_over or isinstance(reply, Unpromoted):
            self._heir_answered(reply)
        if isinstance(reply, Rejoin):
            self.parted = reply
            raise LinkError(
                f"this log and the leader's part behind LSN {reply.lsn}, and the leader has given up the records that "
                "this log has behind it"
            )
        if isinstance(reply, Resync):
            role = self._roles.role
            leader = f"{role.host}:{role.port}"
            self.resyncing = Resyncing(self._core, reply, now, leader, compress=self._compress)
            if self.target is None:
                self.target = reply.last
            self.heard_at = now
            self.leader_lsn = max(self.leader_lsn, reply.last)
            _logger.warning(
                "%s needs a copy of its leader's data: %s", self._core.root, reply.reason
            )
            return
        if not isinstance(reply, Continue):
            raise Refused(_why_not(reply))
        self._roles.consent = False  # it was for what has parted by now
        self._copied = None
        if reply.uuid != self._roles.uuid:
            self._roles.adopt(reply.uuid)
        lsn, crc = self._last
        if self.target is None:
            self.target = reply.last
        self._acked = -1, -1
        self.heard_at = self._whole_at = now
        self.even_at = self.even_at or now
        self.leader_lsn = max(self.leader_lsn, reply.last)
        self._intake = Intake(reply.uuid, lsn, crc, now, compress=self._compress)
        self._came_to(lsn)

    def _heir_answered(self, reply: Reply) -> None:
        """The store that this one has told to lead says how that ended. Raises LinkError."""
        match reply, self._role.hands_over:
            case Unpromoted(), True:
                self.heir_leads = False
                raise LinkError(f"{self._other} was not promoted, and will not be")
            case Unpromoted(), False:
                raise ProtocolError("it says that it was not promoted, but was not asked that")
            case ((Continue() | Behind() | Rejoin() | Resync()), _):
                self.heir_leads = True
                raise LinkError(f"{self._other} was promoted")

    @property
    def _other(self) -> str:
        return f"{self._role.host}:{self._role.port}"

    def settle(self) -> None:
        """Take the role that `heir_leads` asks for. Slow: call it in a thread. Raises TidelogError."""
        if self.heir_leads:
            reason = f"handed over to {self._other}"
            self._roles.handed_over(self._role, reason)
        elif self.heir_leads is False:
            reason = f"took the lead back, because {self._other} was not promoted"
            self._roles.take_back(self._role, reason)
        self.heir_leads = None

    def promotion(self) -> Callable[[], bytes]:
        """The work that makes this store lead, if `told_to_lead`, and returns the answer. Slow: call it in a thread.

        It raises TidelogError: the role says whether this store leads. Raises LinkError if records are missing.
        """
        intake = self._intake
        assert intake is not None and intake.promote is not None
        lsn, generation = intake.promote
        if self._last[0] < lsn:
            raise LinkError(
                f"the leader tells this store to lead with the records through LSN {lsn}, but it has them only through "
                f"LSN {self._last[0]}"
            )
        return partial(self._promote, generation, self._other, self._declined)

    def _promote(self, generation: int, leader: str, declined: int) -> bytes:
        self._roles.promote(f"{leader} handed over", generation, declined)
        checkpoints = self._core.checkpoints
        assert checkpoints is not None  # it is open for writing
        life = checkpoints.epochs[-1]
        _logger.warning(
            "%s leads from LSN %d on, because its leader %s has handed over",
            *(self._core.root, life.lsn, leader),
        )
        return Promoted(life.number, life.lsn).pack()

    def rejoin(self) -> None:
        """Set aside the records that the leader has given up, if `parted`. Slow: call it in a thread.

        Afterwards a new connection may begin at once. Raises Refused: only a person may give them up.
        """
        asked, self.parted = self.parted, None
        if asked is None:
            return
        done = rejoin(self._core, asked, self._surplus_s(), self._roles.consent)
        if isinstance(done, Resync):
            _logger.warning(
                "%s asks for a copy of its leader's data: %s", self._core.root, done.reason
            )
            self._copied = self._roles.role
        self.leader_lsn = asked.last
        self._bad = 0, 0

    def resync(self) -> None:
        """Get the copy, if `resyncing`, and put it in place. Slow: call it in a thread, while the link is up.

        Afterwards a new connection may begin at once.
        """
        if self.resyncing is not None:
            self.resyncing.run()
            self._copied = None
            self._bad = 0, 0

    def clear(self) -> None:
        """Remove what an earlier resync has left, once the leader sends frames. Call it in a thread."""
        roles = self._roles
        if roles.copying.acquire(blocking=False):
            try:
                if self._core.following is not None:
                    swap.clear(roles.disk, self._core.root)
            finally:
                roles.copying.release()

    # --- the stream

    def receive(self, data: bytes, now: float) -> None:
        """Bytes came from the leader, behind the reply."""
        intake = self._intake
        assert intake is not None
        self.heard_at = now
        before = intake.beat, intake.buffered
        intake.receive(data, now)
        if (intake.beat, intake.buffered) != before:
            self._whole_at = now
        self.leader_lsn = max(self.leader_lsn, intake.last_lsn)
        if intake.bye is not None:
            raise LinkError(f"the leader ended the link: {intake.bye}")

    def work(self, seconds_max: float, now: float) -> bool:
        """Append and apply what came, for about so long. Returns whether more is left."""
        intake, following, core = self._intake, self.following, self._core
        if intake is None:
            return False
        until = perf_counter() + seconds_max
        self.stalled = ""
        if not self._timed:
            # before the first frame, since readers see its keys at once and until all frames are applied
            self._tell_time(intake, now)
        try:
            while True:
                if self._batch is None:
                    self._batch = intake.take(WORK_BYTES)
                    if self._batch is None:
                        break
                    # While this store stops reading, it hears of nothing newer.
                    self.leader_lsn = max(self.leader_lsn, self._batch.last)
                if core.durability.relief is not None:
                    self.stalled = "memory is over its budget until a checkpoint is done"
                    return True
                following.receive(self._batch)
                if self._full_disk:
                    self._full_disk = False
                    _logger.info("%s receives its leader's records again", core.root)
                self.frames_bytes += len(self._batch.data)
                self._last = self._batch.last, self._batch.crc
                self._batch = None
                if perf_counter() > until:
                    return True
        except OutOfSpace as error:
            self.stalled = str(error)
            if not self._full_disk:
                self._full_disk = True
                _logger.warning("%s receives nothing until there is room: %s", core.root, error)
            return True
        except BadFrame as error:
            raise self._refused(error) from error
        finally:
            self._came_to(self._last[0])
        self._tell_time(intake, now)
        if self._last[0] >= self.leader_lsn:
            self.even_at = self.heard_at
        self.told_to_lead = intake.promote is not None
        return False

    def _tell_time(self, intake: Intake, now: float) -> None:
        """Let the store's time be the leader's, once a BEAT has said it."""
        if intake.beat is not None:
            self.following.heard(intake.leader_now(now))
            self._timed = True

    @property
    def full(self) -> bool:
        """Whether so much waits to be applied that no more is to be read."""
        return self._intake is not None and self._intake.full

    def send(self, now: float) -> bytes:
        """The acknowledgement that is due, or b""."""
        if self._intake is None:
            return b""
        self.check()
        reached = self._reached()
        data = self._intake.ack(*reached, now)
        if data:
            self._acked = reached
        return data

    def unsaid_s(self, now: float) -> float | None:
        """Seconds until `send` is due again, since there is something new to acknowledge; None: there is nothing."""
        reached = self._reached()
        if self._intake is None or reached == self._acked:
            return None
        return self._intake.ack_in(*reached, now)

    def overdue(self, now: float, timeout_s: float) -> bool:
        """Whether the leader has been silent for so long, or bytes come but no whole message has for much longer.

        The latter is a link that lost bytes: a message takes what follows for its own rest.
        """
        return now - self.heard_at > timeout_s or now - self._whole_at > timeout_s + MESSAGE_S

    def last_words(self, error: BaseException) -> bytes:
        """The message that tells the leader why this side closes the connection, or b""."""
        cause = error.__cause__ or error
        if isinstance(cause, Parted | BadFrame | Different):
            return Fault(cause.lsn, str(error)).pack()
        return b""

    def _reached(self) -> tuple[int, int]:
        lsn, _ = self._last
        return lsn, min(self._core.log.synced_lsn, lsn)

    def _came_to(self, lsn: int) -> None:
        if self.target is not None and lsn >= self.target:
            self.caught_up = True

    def _refused(self, error: BadFrame) -> ReplicationError:
        lsn, times = self._bad
        times = times + 1 if lsn == error.lsn else 1
        self._bad = error.lsn, times
        if times < STUBBORN:
            return LinkError(str(error))
        return Refused(f"{error}. That was attempt {times}; check the leader with `tidelog verify`")


def _why_not(reply: Reply) -> str:
    match reply:
        case Behind():
            return (
                f"the leader's log ends with LSN {reply.last}, before this one's. The leader follows another store, "
                "from which it will receive the rest"
            )
        case Continue() | Rejoin() | Resync() | Unpromoted():
            raise AssertionError("these are no refusals")
        case Refuse() if reply.reason.startswith("ERR unknown command"):
            return (
                "the server there is no tidelog, since it does not know TIDELOG FOLLOW. To take the data of a Redis "
                "and go on with its writes, run `tidelog import --follow`"
            )
    return f"the leader refuses: {reply.reason}"


def take_up(core: Core, host: str, port: int, reason: str) -> None:
    """Follow the leader at this address if the store has no role yet. A role that it has stays, with a warning.

    An option that names a leader is applied at each start. So it must not undo a promotion. Raises TidelogError.
    """
    roles = core.roles
    assert roles is not None
    role = roles.role
    if core.following is None and not role.reason:
        roles.follow(host, port, reason)
    elif core.following is None:
        _logger.warning(
            "%s stays a leader, although it is told at its start to follow %s:%d (%s). REPLICAOF makes it "
            "follow; if it is to lead, take the option `replicaof` out",
            *(core.root, host, port, role.reason),
        )
    elif role.hands_over:
        _logger.warning(
            "%s has told %s:%d to lead and asks it how that ended, although it is told at its start to follow %s:%d. "
            "REPLICAOF changes that",
            *(core.root, role.host, role.port, host, port),
        )
    elif (role.host, role.port) != (host, port):
        _logger.warning(
            "%s goes on following %s:%d, although it is told at its start to follow %s:%d. REPLICAOF changes that",
            *(core.root, role.host, role.port, host, port),
        )
