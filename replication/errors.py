"""Errors of a link between a leader and a follower. Each ends the link; the store itself goes on."""

from __future__ import annotations


class ReplicationError(Exception):
    """Base of all errors of this folder."""


class ProtocolError(ReplicationError):
    """The other side sent bytes that are not part of the protocol. Close the link."""

    def __init__(self, reason: str) -> None:
        super().__init__(f"the other side of the replication link broke the protocol: {reason}")
        self.reason = reason


class Parted(ReplicationError):
    """The leader's log and the follower's differ at an LSN that both have. Close the link; a handshake will say where
    the histories part."""

    def __init__(self, lsn: int, reason: str) -> None:
        super().__init__(
            f"the log of the leader and the log of the follower differ at LSN {lsn}: {reason}"
        )
        self.lsn, self.reason = lsn, reason


class FaultFound(ReplicationError):
    """The follower has found a fault in the leader's log, and ends the link."""

    def __init__(self, lsn: int, reason: str) -> None:
        super().__init__(
            f"it refuses what this log has at LSN {lsn}: {reason}. Check both with `tidelog verify`"
        )
        self.lsn, self.reason = lsn, reason


class LinkError(ReplicationError):
    """The link to the leader could not be made, or broke. It is tried again."""


class Different(LinkError):
    """The data of leader and follower differ at an LSN, although their logs may be the same. Only a person may decide
    what comes next."""

    def __init__(self, agreed: int, lsn: int, reason: str) -> None:
        super().__init__(
            f"the data here and the leader's differ: something in LSN ({agreed}, {lsn}] was applied or stored wrongly; "
            f"{reason}. Check both with `tidelog verify`. REPLICAOF host port REPLACE gets a copy of the leader's data "
            "and keeps this store in quarantine/"
        )
        self.agreed, self.lsn = agreed, lsn


class NoRoom(LinkError):
    """The disk of this store has no room for a copy of the leader's data. It is tried again, but not soon."""


class Refused(LinkError):
    """The leader has said no. It is asked again, but not soon."""
