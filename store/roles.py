"""Roles: whether an open store leads or follows, and changing that while it is open.

Each change publishes REPLICA (store/role.py) first. From then on the file decides: if anything breaks afterwards, the
next call recovers the log in the role that the file states. Then the log ends with everything on the disk, and another
`Log` continues it in a new segment, under the same Core, LOCK and lock. Nothing is replayed.

A rewind (aof/rewind.py) takes back records of a follower's log, and a swap (snapshot/swap.py) replaces log and
checkpoint by a copy of the leader's. There memory is rebuilt from what is left.
"""

from __future__ import annotations

import secrets
import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, Protocol

from tidelog.aof import identity, segment
from tidelog.aof.epochs import generation
from tidelog.aof.errors import AofError, NoSpace
from tidelog.aof.log import Log
from tidelog.aof.reading.recovery import Recovered
from tidelog.aof.segment import End, Position
from tidelog.disk import recipe
from tidelog.disk.interface import Disk
from tidelog.disk.real import OUT_OF_SPACE
from tidelog.snapshot.swap import Swap
from tidelog.snapshot.swap import begin as begin_swap
from tidelog.store import role
from tidelog.store.commit.core import Core
from tidelog.store.commit.landing import NOTHING, RELOAD, Landing
from tidelog.store.errors import DataError, NotStored, OutOfSpace, StoreClosed
from tidelog.store.role import Role

SWAPPED: Final = "the next call reads the store again: this one, or the copy of its leader's data"
CHANGED: Final = "the role or uuid may have changed; the next call recovers the log"
EMPTY: Final = Recovered(0, 0, 0, [], End(0, 0, 0), 0, None)


class Logs(Protocol):
    """The part that replaces the log of an open store. See `store.opening._Opener`. All methods: [lock]."""

    @property
    def uuid(self) -> bytes:
        """The uuid of the store."""

    def own(self) -> None:
        """STORE may name another uuid from now on."""

    def retiring(self, log: Log) -> None:
        """The log is about to end. Until `replace` returns, a rebuild recovers from what is on the disk."""

    def replace(self, landing: Landing, end: Recovered) -> None:
        """Go on after `end` with another log, in the role that the store has now."""


class Roles:
    """The role of one open store.

    role      what REPLICA states
    changed   called [lock] after each change of the role; must not fail, nor call the store
    consent   a person has agreed that this follower gives up records which its leader does not have. Not stored; it
              holds until the leader has sent frames, or the role changes
    copying   held by the one thread that works in resync/
    declined  how often this store said that it will not be promoted by a leader which had told it to lead
    agreed    the last LSN at which the data here was compared with the leader's, and was the same; 0 = none yet
    differs   the data here is not the leader's, and how that was found: it does not follow until a copy replaces it
    rewinds   how often the log was rewound or replaced: a place in it that was found before may be another history's
    """

    def __init__(self, disk: Disk, root: Path, logs: Logs) -> None:
        self.role: Role = role.ALONE
        self.changed: list[Callable[[], object]] = []
        self.consent = False
        self.agreed = 0
        self.differs: Exception | None = None
        self.rewinds = 0
        self.copying = threading.Lock()
        self.declined = 0
        self.disk, self._root, self._logs = disk, root, logs
        self._core: Callable[[], Core | None] = lambda: None
        self.read()
        self._told = self.role  # the role that the callers of `changed` know

    @property
    def uuid(self) -> bytes:
        """The uuid of the store."""
        return self._logs.uuid

    # --- opening

    def read(self) -> None:
        """Read REPLICA. Raises Damage, NewerFormat, OSError."""
        self.role = role.read(self.disk, self._root)

    def attend(self, core: Core) -> None:
        """Give this core its role. Holds it weakly."""
        self._core = weakref.ref(core)
        core.roles = core.acks.roles = self
        with core.lock:
            self.settle()

    def settle(self) -> None:
        """[lock] Make the core lead or follow, as `role` says. Its log has that role already."""
        core = self._core()
        if core is None:
            return
        if self.role.follows != (core.following is not None):
            # imported here, because most stores never follow
            from tidelog.store.commit import following

            if self.role.follows:
                following.follow(core)
            else:
                following.lead(core)
        if self._told != self.role:
            self.tell()

    def tell(self) -> None:
        """[lock] Call `changed`: the role changed, or what links say about this store."""
        for told in self.changed:
            told()
        core = self._core()
        if core is not None:
            core.acks.tell()  # calls that wait for followers of the old role's log have ended
            core.arrivals.tell()  # the store may lead now, with a life of its own
        self._told = self.role

    # --- changes

    def follow(self, host: str, port: int, reason: str = "", *, consent: bool = False) -> None:
        """Follow the leader at this address from now on. In a follower, only the address changes.

        Calls that wait to write fail with UNBLOCKED. Raises DataError (the address), NotStored and OutOfSpace (the
        role is as before), StorePoisoned.
        """
        try:
            role.check_address(host, port)
        except ValueError as error:
            raise DataError(str(error)) from None
        with self._sound() as core:
            self._change(
                core,
                Role(
                    "follower",
                    self.role.id or secrets.token_hex(16),
                    host,
                    port,
                    self._generation(core),
                    reason or "told to follow",
                ),
                consent,
            )

    def promote(self, reason: str = "", generation: int = 0, declined: int | None = None) -> None:
        """Lead from now on, as the first life of the next generation. Its EPOCH is on the disk when this returns.

        A store that has told another one to lead skips a generation, which may be the other's by now.

        generation   this one at least
        declined     `declined` as it was when a leader could tell this store to lead; another value = it said no since

        Does nothing in a leader whose life has that already. Raises NotStored and OutOfSpace: repeat the call;
        StorePoisoned.
        """
        with self._sound() as core:
            was = self.role
            if declined is not None and (self.declined != declined or was.kind != "follower"):
                raise NotStored(f"{NOTHING}: the store no longer waits to be promoted")
            if was.follows:
                skipped = 2 if was.hands_over else 1
                self._change(
                    core,
                    was._replace(
                        kind="leader",
                        host="",
                        port=0,
                        generation=max(self._generation(core) + skipped, generation),
                        reason=reason or f"promoted, after following {was.host}:{was.port}",
                        heir="",
                    ),
                )
            elif self._generation(core) >= was.generation:
                return
            self._begin_life(core)

    # --- handing over

    def suspend(self) -> int:
        """Take no writes from now on, until `release` or a change of the role. Returns the LSN of the last record.

        Raises DataError (the store does not lead), NotStored, StorePoisoned.
        """
        # imported here, because most stores never hand over
        from tidelog.store.commit import suspended

        with self._sound() as core:
            if self.role.follows:
                raise DataError("this store follows, so it has nothing to hand over")
            try:
                core.log.begin_life()  # a follower that connects later asks for it, and it could not be logged then
                core.log.flush()
            except BaseException as error:
                raise core.landing.unreserved(error)
            suspended.suspend(core)
            return core.log.written_lsn

    def release(self) -> None:
        """Take writes again, unless the store hands over by now. Raises what `Core.mend` raises."""
        # imported here, because most stores never hand over
        from tidelog.store.commit import suspended

        with self._sound() as core:
            suspended.release(core)

    def hand_over(self, heir: bytes, host: str, port: int, reason: str) -> int:
        """State that the follower with this ID, at this address, is to lead. The store takes no writes from now on.

        Returns the generation that the follower is to begin. Only when this has returned may it be told. Calls that
        wait to write fail with UNBLOCKED. Raises DataError, NotStored and OutOfSpace (see `role` for how that ended),
        StorePoisoned.
        """
        try:
            role.check_address(host, port)
        except ValueError as error:
            raise DataError(str(error)) from None
        with self._sound() as core:
            if self.role.follows:
                raise DataError("this store follows, so it has nothing to hand over")
            now = self._generation(core)
            id_ = self.role.id or secrets.token_hex(16)
            self._change(core, Role("handing over", id_, host, port, now, reason, heir.hex()))
            return now + 1

    def decline(self) -> None:
        """[lock] The leader asks whether it had this follower promoted. It had not, and from now on cannot have."""
        self.declined += 1

    def handed_over(self, asked: Role, reason: str) -> None:
        """The store that was told to lead does: follow it. Does nothing if the role is not `asked` by now.

        Raises NotStored, OutOfSpace, StorePoisoned.
        """
        with self._sound() as core:
            if self.role == asked:
                told = asked._replace(kind="follower", heir="", reason=reason)
                self._change(core, told)

    def take_back(self, asked: Role, reason: str) -> None:
        """The store that was told to lead does not, and will not: lead again, in the same generation.

        Does nothing if the role is not `asked` by now. Raises NotStored, OutOfSpace, StorePoisoned.
        """
        with self._sound() as core:
            if self.role == asked:
                told = asked._replace(kind="leader", host="", port=0, heir="", reason=reason)
                self._change(core, told)
                self._begin_life(core)

    def adopt(self, uuid: bytes) -> None:
        """Make an empty follower (LSN 0) a copy of the store with this uuid.

        Raises DataError if the store is not empty or leads; NotStored, OutOfSpace: it has its own uuid as before.
        """
        with self._sound() as core:
            landing = core.landing
            if not self.role.follows:
                raise DataError("this store leads, so it keeps its uuid; let it follow first")
            if landing.log.next_lsn > 1:
                raise DataError(
                    f"{self._root} holds records through LSN {landing.log.next_lsn - 1} of its own history; only an "
                    "empty store can become a copy of another one"
                )
            if self.disk.exists(self._root / identity.CHECKPOINT / identity.DATA):
                raise DataError(
                    f"{self._root} is empty but has a checkpoint, which names the store's own uuid; follow with a new "
                    "directory instead"
                )
            if uuid == self.uuid:
                return
            with self._breakable(core):
                landing.log.hand_over(0)
                # A segment that no frame was written to has the old uuid in its header.
                for name in self.disk.listdir(self._root / identity.AOF):
                    if segment.first_lsn_of(name) is not None:
                        recipe.remove(self.disk, self._root / identity.AOF / name)
                identity.create(self.disk, self._root, uuid)  # with DURABLE, in this order
                self._logs.own()
                self._logs.replace(landing, EMPTY)
                landing.trouble = None

    def rewind(self, at: Position, aside: Path, report: bytes, role: Role, last: int) -> str:
        """End a follower's log at `at`, keep what is behind it in `aside`, and rebuild memory from what is left.

        aside        a directory in quarantine/, made if it is missing
        report       published in it first
        role, last   the role and the last LSN that the store had when this was decided

        If its checkpoint or a snapshot reaches beyond `at`, nothing happens, and the reason is returned; else "". Calls
        wait meanwhile. Readers that wait are decided again. Raises NotStored (it has another role or last LSN by now;
        or the next call recovers the log, which may be rewound or not), OutOfSpace, SnapshotsLocked, StorePoisoned,
        OSError.
        """
        # imported here, because most stores never rewind
        from tidelog.aof.rewind import rewind
        from tidelog.aof.surplus import REPORT

        with self._unchanged(role, last) as (core, covered):
            if covered > at.lsn:
                return f"its checkpoint or a snapshot holds records through LSN {covered}"
            log = core.log
            self._sync(core)
            with self._breakable(core, "the log may be rewound; the next call recovers it"):
                recipe.make_directory(self.disk, aside.parent)
                recipe.make_directory(self.disk, aside)
                recipe.publish(self.disk, aside / REPORT, report)
                self.rewinds += 1
                log.hand_over(core.landing.now)
                rewind(self.disk, self._root, self.uuid, at, aside)
            core.mend()  # memory still has what was set aside
        return ""

    def swap(self, new: Swap, role: Role, last: int) -> None:
        """Let the store in resync/store take the place of this one, and read it into memory.

        role, last   the role and the last LSN that the store had when this was decided

        Calls wait meanwhile. Transactions that watch a key fail, and readers that wait are decided again. Raises
        NotStored (it has another role or last LSN by now; or the next call finishes the swap, if it has begun),
        OutOfSpace, SnapshotsLocked, StorePoisoned, Damage, OSError.
        """
        with self._unchanged(role, last) as (core, _):
            self._sync(core)
            with self._breakable(core, SWAPPED):
                self.rewinds += 1
                core.log.hand_over(core.landing.now)
                begin_swap(self.disk, self._root, new)
            core.mend()  # finishes it, and reads what is there now

    def info(self) -> dict[str, Any]:
        """The section `replication` of `Store.info`."""
        found = self.role
        told: dict[str, Any] = {
            "role": found.kind,
            "id": found.id,
            "generation": found.generation,
            "reason": found.reason,
        }
        if found.hands_over:
            told |= {"heir_host": found.host, "heir_port": found.port}
        elif found.follows:
            told |= {"leader_host": found.host, "leader_port": found.port}
        core = self._core()
        link = None if core is None else core.link
        if core is not None and link is not None:
            heard, lsn = link.follower, core.log.written_lsn
            told |= {
                "link": link.state,
                "link_failure": link.failure,
                "caught_up": heard.caught_up,
                "leader_lsn": heard.leader_lsn,
                "lag": max(heard.leader_lsn - lsn, 0),
                "stalled": heard.stalled,
                "verified_lsn": self.agreed,
            }
        return told

    # --- the steps

    def _open(self) -> Core:
        core = self._core()
        if core is None:
            raise StoreClosed("the store was closed; open it again")
        return core

    @contextmanager
    def _sound(self) -> Iterator[Core]:
        """Hold the lock of the store, once its memory and log agree. Raises what `Core.mend` raises."""
        core = self._open()
        with core.lock:
            if core.trouble is not None:
                core.mend()
            yield core

    @contextmanager
    def _unchanged(self, role: Role, last: int) -> Iterator[tuple[Core, int]]:
        """As `_sound`, in a follower that still has this role and this last LSN. Meanwhile there is no checkpoint.

        Gives the LSN through which a checkpoint or a snapshot holds records, too. Raises NotStored, SnapshotsLocked.
        """
        checkpoints = self._open().checkpoints
        assert checkpoints is not None  # it is open for writing
        with checkpoints.paused() as covered, self._sound() as core:
            if (self.role, core.log.next_lsn - 1) != (role, last) or core.following is None:
                raise NotStored(f"{NOTHING}: the store has another role or other records by now")
            yield core, covered

    def _sync(self, core: Core) -> None:
        """[lock] Sync the log before anything else is done to it.

        A log whose sync fails has to fail here, because after that the store must not recover by itself.
        """
        try:
            core.log.sync_whole()
        except BaseException as error:
            raise core.landing.unreserved(error)

    def _generation(self, core: Core) -> int:
        """The generation of the newest life in the log."""
        assert core.checkpoints is not None  # it is open for writing
        epochs = core.checkpoints.epochs
        return generation(epochs[-1].number) if epochs else 0

    def _begin_life(self, core: Core) -> None:
        """[lock] Log the EPOCH of a leader's life, and sync it before a follower that is connected already gets it: a
        power cut must not take a life that a follower knows."""
        try:
            core.log.begin_life()
            core.log.sync_whole()
        except BaseException as error:
            raise core.landing.unreserved(error)

    def _change(self, core: Core, new: Role, consent: bool = False) -> None:
        """[lock] Publish the role and take it."""
        landing = core.landing
        turned = new.follows != self.role.follows
        log = landing.log
        if turned:
            self._sync(core)
        try:
            role.publish(self.disk, self._root, new)
        except BaseException as error:
            raise self._unpublished(core, error)
        self.consent = consent
        if turned:
            self.agreed, self.differs = 0, None
            with self._breakable(core):
                self.role = new
                self._logs.replace(landing, log.hand_over(landing.now))
                self.settle()
                landing.trouble = None
        else:
            self.role = new
            self.tell()

    def _unpublished(self, core: Core, error: BaseException) -> BaseException:
        """REPLICA could not be published, perhaps after it got its name. Returns the error to raise."""
        try:
            same = role.read(self.disk, self._root) == self.role
        except (AofError, OSError):
            same = False
        if not same:
            self._logs.retiring(core.log)
            core.doubt()
        if not isinstance(error, OSError):
            return error
        if not same:
            text = f"{NOTHING}, but the store may have the new role: look at its role, or repeat the call"
        else:
            text = f"{NOTHING}, and the store keeps its role"
        full = error.errno in OUT_OF_SPACE
        told = (OutOfSpace if full else NotStored)(f"{text}: {error}")
        told.__cause__ = error
        return told

    @contextmanager
    def _breakable(self, core: Core, text: str = CHANGED) -> Iterator[None]:
        """[lock] Steps that replace the log. If one breaks, the next call recovers, in the role that is published.

        The last step sets `trouble` to None, unless memory has to be rebuilt.
        """
        landing = core.landing
        self._logs.retiring(landing.log)
        landing.trouble = RELOAD
        try:
            yield
        except (AofError, OSError) as error:
            full = isinstance(error, NoSpace) or getattr(error, "errno", 0) in OUT_OF_SPACE
            raise (OutOfSpace if full else NotStored)(f"{NOTHING}, but {text}: {error}") from error
