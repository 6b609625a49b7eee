"""The handshake: the follower's request, and the leader's reply, as words and a line of RESP.

    TIDELOG FOLLOW 1 <uuid> <id> <address> <lsn> <crc> <lives> [REPLACE] [COPY] [COMPRESS] [HEIR <id>]

    1         version of this protocol
    uuid      of the store, 32 hex digits; an empty store (LSN 0) may name any
    id        of this copy of the store, 32 hex digits
    address   [host:]port at which the follower serves clients; port 0 for none. Without a host, the leader takes the
              address from which the follower connects
    lsn, crc  the last frame of the follower's log: the LSN that it ends with, and the CRC of its header, 8 hex digits
    lives     <number>:<incarnation, 16 hex digits>:<first LSN>, newest first, joined by commas, at most 100; - for none
    REPLACE   a person agrees that the follower's log is set aside where it has parted from the leader's
    COPY      the follower cannot go on from its log, or rewind it: RESYNC instead of CONTINUE and REJOIN
    COMPRESS  the leader may compress what it sends
    HEIR      the sender has told the copy with this ID to lead, and asks how that ended. It follows only a store of a
              higher generation

The reply is one line. `last` is the leader's last LSN: an empty follower has caught up when it has reached it.

    +CONTINUE <uuid> <last>                          FRAMES of what follows lsn come next
    +BEHIND <uuid> <last>                            the log ends before lsn, but it will come; ask again later
    +REJOIN <uuid> <last> <N> <CRC or -> ANY|SHORT   set aside what is behind N, then ask again; SHORT: only if
                                                     it spans a short time
    +RESYNC <uuid> <last> <shared> SAME|LIKELY <reason>   a SNAPSHOT comes next; both have the records through `shared`:
                                                     the checksums there were compared, or only the lives were
    +UNPROMOTED <uuid> <last>                        to HEIR: this copy was not promoted, and what the sender told it
                                                     over an earlier link cannot promote it any more
    -PARTED <N> <reason>                             only a person may give up what is behind N, by REPLACE
    -SUPERSEDED <reason>, -REFUSED <reason>, -...    no

After any reply but CONTINUE and RESYNC the leader sends nothing more.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final, NamedTuple

from tidelog.aof.reading.reader import Epoch
from tidelog.replication.errors import ProtocolError
from tidelog.replication.protocol import REASON_BYTES_MAX, cut

VERSION: Final = 1
LIVES_MAX: Final = 100
OPTIONS: Final = (b"REPLACE", b"COPY", b"COMPRESS")  # each at most once, in this order
_LSN_MAX: Final = (1 << 64) - 1
_HOST = re.compile(rb"[!-~]{0,255}")
_NUMBER = re.compile(rb"0|[1-9][0-9]{0,19}", re.ASCII)


class Follow(NamedTuple):
    """The request of a follower."""

    uuid: bytes
    id: bytes
    port: int
    lsn: int
    crc: int
    lives: tuple[Epoch, ...]  # newest first
    replace: bool = False
    host: str = ""  # that the follower announces; "" if none
    copy: bool = False
    heir: bytes = b""  # ID of the copy that was told to lead
    compress: bool = False

    def words(self) -> list[bytes]:
        """The request as the words of a command. Only the newest LIVES_MAX lives are sent."""
        lives = b",".join(b"%d:%016x:%d" % life for life in self.lives[:LIVES_MAX])
        words = [
            *(b"TIDELOG", b"FOLLOW", b"%d" % VERSION, self.uuid.hex().encode()),
            *(
                self.id.hex().encode(),
                _address(self.host, self.port),
                b"%d" % self.lsn,
                b"%08x" % self.crc,
            ),
            lives or b"-",
        ]
        asked = zip(OPTIONS, (self.replace, self.copy, self.compress), strict=True)
        heir = [b"HEIR", self.heir.hex().encode()] if self.heir else []
        return [*words, *[word for word, wanted in asked if wanted], *heir]


def parse_follow(words: Sequence[bytes]) -> Follow:
    """The request that `words` hold, TIDELOG FOLLOW included. Raises ProtocolError."""
    version, *rest = words[2:] or [b""]
    if _NUMBER.fullmatch(version) and int(version) != VERSION:
        raise ProtocolError(
            f"it asks for version {int(version)} of the replication protocol, but this tidelog has version {VERSION}; "
            "upgrade the older side (followers first)"
        )
    given = rest[6:]
    heir: bytes | None = None
    if len(given) > 1 and given[-2].upper() == b"HEIR":
        heir = given[-1]
        del given[-2:]
    options = [word.upper() for word in given]
    replace, copy, compress = (word in options for word in OPTIONS)
    asked = [word for word in OPTIONS if word in options]
    if len(rest) < 6 or options != asked or version != b"%d" % VERSION:
        raise ProtocolError("TIDELOG FOLLOW needs version, uuid, id, address, lsn, crc and lives")
    uuid, id_, address, lsn, crc, lives = rest[:6]
    host, colon, port = address.rpartition(b":")
    if not _HOST.fullmatch(host) or bool(host) != bool(colon):
        raise ProtocolError(f"{_shown(host)} is not the name of a host")
    follow = Follow(
        _hex("a uuid", uuid, 16),
        _hex("an id", id_, 16),
        _number("a port", port, 65535),
        _number("an LSN", lsn, _LSN_MAX),
        int.from_bytes(_hex("a crc", crc, 4), "big"),
        _lives(lives),
        replace,
        host.decode(),
        copy,
        b"" if heir is None else _hex("an id", heir, 16),
        compress,
    )
    if bool(follow.lsn) != bool(follow.lives) or (
        follow.lives and follow.lives[0].lsn > follow.lsn
    ):
        raise ProtocolError(f"its lives do not belong to a log that ends with LSN {follow.lsn}")
    return follow


# The end of the refusal of a leader that follows the store that asks it.
EACH_OTHER: Final = "this server follows the one that asks"


class Continue(NamedTuple):
    """The frames behind the follower's last one come next."""

    uuid: bytes
    last: int

    def line(self) -> bytes:
        return b"+CONTINUE %s %d\r\n" % (self.uuid.hex().encode(), self.last)


class Behind(NamedTuple):
    """The upstream is a follower, too, and has not yet received what this follower has. Ask again later."""

    uuid: bytes
    last: int

    def line(self) -> bytes:
        return b"+BEHIND %s %d\r\n" % (self.uuid.hex().encode(), self.last)


class Unpromoted(NamedTuple):
    """The upstream was told to lead, and does not: it was not promoted, and says that it will not be."""

    uuid: bytes
    last: int

    def line(self) -> bytes:
        return b"+UNPROMOTED %s %d\r\n" % (self.uuid.hex().encode(), self.last)


class Rejoin(NamedTuple):
    """The histories part behind `lsn`. Set aside what follows, end the log there, and ask again.

    crc    of the leader's frame that ends with `lsn`: the follower's must be the same. None if the leader no longer
           has it
    short  only if the surplus spans a short time: no promotion gave it up, only a leader's fsync policy
    """

    uuid: bytes
    last: int
    lsn: int
    crc: int | None
    short: bool

    def line(self) -> bytes:
        crc = b"-" if self.crc is None else b"%08x" % self.crc
        how = b"SHORT" if self.short else b"ANY"
        words = (self.uuid.hex().encode(), self.last, self.lsn, crc, how)
        return b"+REJOIN %s %d %d %s %s\r\n" % words


class Resync(NamedTuple):
    """The leader's log does not hold what the follower lacks. A snapshot comes next.

    shared    the leader has all records of the follower's log through this LSN; what is behind it is to be set aside
    same      the checksums of both logs agree at `shared`. Else only their lives say so, and they are the same in two
              machines that were cloned while they ran
    """

    uuid: bytes
    last: int
    shared: int
    reason: str
    same: bool = False

    def line(self) -> bytes:
        known = b"SAME" if self.same else b"LIKELY"
        words = (self.uuid.hex().encode(), self.last, self.shared, known, _text(self.reason))
        return b"+RESYNC %s %d %d %s %s\r\n" % words


class Stop(NamedTuple):
    """The histories part behind `lsn`, and only a person may say which of them is given up."""

    lsn: int
    reason: str

    def line(self) -> bytes:
        return b"-PARTED %d %s\r\n" % (self.lsn, _text(self.reason))


class Superseded(NamedTuple):
    """The follower's log was promoted after the leader's: the leader is the one to follow."""

    reason: str

    def line(self) -> bytes:
        return b"-SUPERSEDED %s\r\n" % _text(self.reason)


class Refuse(NamedTuple):
    """The leader does not serve this follower. Asking again changes nothing until somebody acts."""

    reason: str

    def line(self) -> bytes:
        return b"-REFUSED %s\r\n" % _text(self.reason)


Reply = Continue | Behind | Unpromoted | Rejoin | Resync | Stop | Superseded | Refuse


def parse_reply(line: bytes) -> Reply:
    """The reply in `line`, with or without its CRLF. An error of another kind (NOAUTH, LOADING, ...) is a Refuse with
    the whole text. Raises ProtocolError."""
    line = line.removesuffix(b"\r\n")
    kind, _, rest = line.partition(b" ")
    match kind, rest.split(b" "):
        case b"+CONTINUE", [uuid, last]:
            return Continue(_hex("a uuid", uuid, 16), _lsn(last))
        case b"+BEHIND", [uuid, last]:
            return Behind(_hex("a uuid", uuid, 16), _lsn(last))
        case b"+UNPROMOTED", [uuid, last]:
            return Unpromoted(_hex("a uuid", uuid, 16), _lsn(last))
        case b"+REJOIN", [uuid, last, lsn, crc, b"ANY" | b"SHORT" as how]:
            known = None if crc == b"-" else int.from_bytes(_hex("a crc", crc, 4), "big")
            return Rejoin(_hex("a uuid", uuid, 16), _lsn(last), _lsn(lsn), known, how == b"SHORT")
        case b"+RESYNC", [uuid, last, shared, b"SAME" | b"LIKELY" as known, _, *_]:
            reason = rest.split(b" ", 4)[4].decode(errors="replace")
            same = known == b"SAME"
            return Resync(_hex("a uuid", uuid, 16), _lsn(last), _lsn(shared), reason, same)
        case b"-PARTED", [lsn, _, *_]:
            return Stop(_lsn(lsn), rest.split(b" ", 1)[1].decode(errors="replace"))
        case b"-SUPERSEDED", _:
            return Superseded(rest.decode(errors="replace"))
        case b"-REFUSED", _:
            return Refuse(rest.decode(errors="replace"))
        case _ if line.startswith(b"-"):
            return Refuse(line[1:].decode(errors="replace"))
        case _:
            raise ProtocolError(f"it answered the handshake with {_shown(line)}")


def _address(host: str, port: int) -> bytes:
    return b"%s:%d" % (host.encode(), port) if host else b"%d" % port


def _lives(word: bytes) -> tuple[Epoch, ...]:
    if word == b"-":
        return ()
    texts = word.split(b",", LIVES_MAX)
    if len(texts) > LIVES_MAX:
        raise ProtocolError(f"it names more than {LIVES_MAX} lives")
    lives = tuple(_life(text) for text in texts)
    for newer, older in zip(lives, lives[1:], strict=False):
        if newer.lsn <= older.lsn or newer.number <= older.number:
            raise ProtocolError("its lives are not named newest first")
    return lives


def _life(text: bytes) -> Epoch:
    match text.split(b":"):
        case [number, incarnation, lsn]:
            life = Epoch(
                _number("a life's number", number, _LSN_MAX),
                int.from_bytes(_hex("an incarnation", incarnation, 8), "big"),
                _lsn(lsn),
            )
            if life.number and life.lsn:
                return life
    raise ProtocolError(f"{_shown(text)} is not a life: number:incarnation:lsn")


def _hex(name: str, word: bytes, nbytes: int) -> bytes:
    if not re.fullmatch(rb"[0-9a-f]{%d}" % (2 * nbytes), word):
        raise ProtocolError(f"{_shown(word)} is not {name}: {2 * nbytes} hex digits")
    return bytes.fromhex(word.decode())


def _number(name: str, word: bytes, most: int) -> int:
    if not _NUMBER.fullmatch(word) or int(word) > most:
        raise ProtocolError(f"{_shown(word)} is not {name}: a number from 0 to {most}")
    return int(word)


def _lsn(word: bytes) -> int:
    return _number("an LSN", word, _LSN_MAX)


def _text(reason: str) -> bytes:
    """`reason` as it may stand in a line of RESP: no control characters, not too long, not empty."""
    plain = "".join(c if c.isprintable() else " " for c in reason)
    return cut(plain, REASON_BYTES_MAX) or b"-"


def _shown(word: bytes) -> str:
    """The beginning of bytes from a stranger, for a message."""
    return repr(word[:40])[1:] + ("..." if len(word) > 40 else "")
