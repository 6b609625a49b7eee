"""Seen: what a session wrote or was shown, for its token (TIDELOG TOKEN).

The hot paths note LSNs only: `Session.wrote_lsn`, and `lsn` here for reads. Both are of the connection's present log.
When a connection goes on with another log, `begin_anew` makes a token of what was before: the same LSN may be another
record by then.
"""

from __future__ import annotations

from tidelog.aof.log import Log
from tidelog.aof.segment import LEADER
from tidelog.store import tokens
from tidelog.store.commit.core import Core
from tidelog.store.tokens import Token, Verdict


class Seen:
    """See the module docstring.

    lsn    the last LSN that a read could show
    """

    __slots__ = ("lsn", "_core", "_rewinds", "_wrote_before", "_before", "_unknown")

    def __init__(self, core: Core) -> None:
        self.lsn = 0
        self._core = core
        self._rewinds = _rewinds(core)
        self._wrote_before = 0  # `wrote_lsn` that belongs to an earlier log
        self._before: Token | None = None  # of what was seen in earlier logs
        self._unknown = False  # what was seen in an earlier log has no token

    def begin_anew(self, old: Log, wrote_lsn: int) -> None:
        """The connection goes on with another log than `old`."""
        core = self._core
        with core.lock:
            seen = self._newest(wrote_lsn)
            if seen:
                self._before = self._token_of(old, seen, wrote_lsn)
                self._unknown = self._before is None
            self.lsn, self._wrote_before = 0, wrote_lsn
            self._rewinds = _rewinds(core)

    def token(self, log: Log, wrote_lsn: int) -> Token | None:
        """The token of what the session has seen; None if that is no longer known. Raises TidelogError.

        log, wrote_lsn    the connection's present log, and `Session.wrote_lsn`
        """
        core = self._core
        with core.lock:
            if core.trouble is not None:
                core.mend()
            own = tokens.first_digits(core)
            if self._unknown:
                return None
            before = self._before
            if before is not None and not self._here(before):
                return before  # it is lost here, or its uuid has gone
            seen = self._newest(wrote_lsn)
            if not seen:
                return before or Token(own, 0, 0, 0)
            return self._token_of(log, seen, wrote_lsn)

    def _newest(self, wrote_lsn: int) -> int:
        return max(self.lsn, wrote_lsn if wrote_lsn != self._wrote_before else 0)

    def _here(self, token: Token) -> bool:
        core = self._core
        assert core.checkpoints is not None
        lives, last = core.checkpoints.epochs, core.log.next_lsn - 1
        return (
            token.store == tokens.first_digits(core)
            and tokens.judge(token, lives, last) is Verdict.HERE
        )

    def _token_of(self, log: Log, lsn: int, wrote_lsn: int) -> Token | None:
        """[lock] The token of an LSN of `log`; None if it is not known which life that was."""
        core = self._core
        if core.roles is None or core.checkpoints is None:
            return None
        own = tokens.first_digits(core)
        if log.role == LEADER and lsn == wrote_lsn:
            return Token(own, log.epoch, log.incarnation, lsn)
        if _rewinds(core) != self._rewinds:
            return None
        life = tokens.life_of(core.checkpoints.epochs, lsn)
        return None if life is None else Token(own, life.number, life.incarnation, lsn)


def _rewinds(core: Core) -> int:
    return 0 if core.roles is None else core.roles.rewinds
