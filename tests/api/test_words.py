"""`execute_command` with every stream command in many forms: the very replies of redis-py (protocol=2) on Redis 7.0."""

from __future__ import annotations

from typing import Any

import pytest
import redis
from tests import inside

import tidelog

# Blanks part words. Idle times that depend on the clock are masked; `IDLE` sets them.
LINES = """
XADD s 1-1 a 1 b 2
XADD s 1-2 a 1 a 2
XADD s 2-* c 3
XADD s 1-1 a 1
XADD missing NOMKSTREAM * a 1
XADD s MAXLEN ~ 1000 3-0 d 4
XADD s MAXLEN = 10 4-0 e 5
XADD s * odd
XADD string * a 1
xadd s 5-0 f 6
XADD e 9-9 a 1
XDEL e 9-9
XLEN s
XLEN missing
XLEN string
XRANGE s - +
XRANGE s - + COUNT 2
XRANGE s - + COUNT 0
XRANGE s - + COUNT -1
XRANGE missing - + COUNT 0
XRANGE missing - +
XRANGE s (1-1 2
XRANGE s 9 +
XRANGE e - +
XRANGE s - + COUNT
XRANGE string - +
XREVRANGE s + -
XREVRANGE s + - COUNT 1
XREVRANGE s + - COUNT 0
XREVRANGE missing + -
XREVRANGE missing + - COUNT 0
XREAD STREAMS s 0
XREAD COUNT 1 STREAMS s e 0 0
XREAD STREAMS s $
XREAD STREAMS s 9
XREAD BLOCK 1 STREAMS s $
XREAD STREAMS missing 0
XREAD COUNT 0 STREAMS s 3
XREAD STREAMS s
XREAD STREAMS string 0
XGROUP CREATE s g 0
XGROUP CREATE s g 0
XGROUP CREATE missing g 0
XGROUP CREATE made g $ MKSTREAM
XGROUP CREATE s late 3-0 ENTRIESREAD 2
XGROUP CREATECONSUMER s g idle
XGROUP CREATECONSUMER s g idle
XGROUP SETID s late 0
XGROUP SETID s none 0
XREADGROUP GROUP g c COUNT 2 STREAMS s >
XREADGROUP GROUP g c STREAMS s 0
XREADGROUP GROUP g c COUNT 1 STREAMS s 0
XREADGROUP GROUP g d STREAMS s 0
XREADGROUP GROUP g d COUNT 1 STREAMS s >
XREADGROUP GROUP g d NOACK COUNT 1 STREAMS s >
XREADGROUP GROUP none d STREAMS s >
XREADGROUP GROUP g c BLOCK 1 STREAMS made >
XREADGROUP GROUP g c STREAMS s made > 0
XREADGROUP GROUP g c STREAMS s >
XDEL s 1-2
XREADGROUP GROUP g c STREAMS s 0
XPENDING s g
XPENDING made g
XPENDING s none
XPENDING missing g
XPENDING s g - + 10
XPENDING s g - + 10 c
XPENDING s g IDLE 0 - + 1
XPENDING s g IDLE 100000 - + 10
XPENDING s g - + 0
XPENDING s g - + -1
XPENDING s g - + 10 nobody
XPENDING made g - + 10
XPENDING s g (1-1 + 10
XPENDING s g - +
XCLAIM s g d 0 1-1
XCLAIM s g d 0 1-1 JUSTID
XCLAIM s g d 100000 1-1
XCLAIM s g d 100000 1-1 JUSTID
XCLAIM s g d 0 9-9
XCLAIM s g d 0 1-1 IDLE 500000 RETRYCOUNT 7
XCLAIM s g d 0 4-0 FORCE
XCLAIM s none d 0 1-1
XCLAIM missing g d 0 1-1 JUSTID
XCLAIM s g d 0 1-2
XCLAIM s g d 0 4-0 1-1 TIME 5 JUSTID
XCLAIM s g d 0 1-1 BAD
XAUTOCLAIM s g f 0 0
XAUTOCLAIM s g f 0 0 JUSTID
XAUTOCLAIM s g f 0 0 COUNT 1
XAUTOCLAIM s g f 0 0 COUNT 1 JUSTID
XAUTOCLAIM s g f 1000000000 0 JUSTID
XAUTOCLAIM s g f 1000000000 -
XAUTOCLAIM made g f 0 0
XAUTOCLAIM made g f 0 0 JUSTID
XAUTOCLAIM s none f 0 0
XAUTOCLAIM s g f 0 0 COUNT 0
XINFO STREAM s
XINFO STREAM e
XINFO STREAM made
XINFO STREAM missing
XINFO STREAM s FULL
XINFO STREAM s FULL COUNT 1
XINFO STREAM e FULL
XINFO GROUPS s
XINFO GROUPS e
XINFO GROUPS missing
XINFO CONSUMERS s g
XINFO CONSUMERS s late
XINFO CONSUMERS s none
XINFO NOTHING s
XACK s g 1-1 9-9
XACK s g 1-1
XACK missing g 1-1
XACK s g
XTRIM s MAXLEN 100
XTRIM s MAXLEN = 3
XTRIM s MINID ~ 3
XTRIM s MINID 3 LIMIT 1
XTRIM missing MAXLEN 0
XSETID s 9-0
XSETID s 20-0 ENTRIESADDED 100 MAXDELETEDID 5-0
XSETID missing 1-0
XDEL s 3-0 3-0 8-8
XDEL missing 1-1
XGROUP DELCONSUMER s g f
XGROUP DELCONSUMER s g f
XGROUP DESTROY s late
XGROUP DESTROY s late
XREADGROUP GROUP g c STREAMS s 0
XRANGE s - +
XTRIM s MAXLEN 0
XRANGE s - + COUNT 0
XREVRANGE s + -
XPENDING s g
""".strip().splitlines()

# Types that redis-py's own methods pass besides, and callers of execute_command may.
OPTIONS: dict[str, dict[str, Any]] = {"JUSTID": {"parse_justid": True}, "FULL": {"full": True}}
CLOCKS = ("idle", "seen-time", "time_since_delivered")
NEWER = ("inactive", "active-time", "nacked-count", "idmp-duration", "idmp-maxsize")
NEWER_PREFIXES = ("pids-", "iids-")
UNIX_MS = 1 << 40  # an int above this is a moment


def masked(reply: Any, words: list[str]) -> Any:
    """A reply without what depends on the clock, and without the fields that came after 7.0."""
    if isinstance(reply, dict):
        return {
            key: 0 if key in CLOCKS else masked(value, words)
            for key, value in reply.items()
            if key not in NEWER and not str(key).startswith(NEWER_PREFIXES)
        }
    if isinstance(reply, list):
        if words[0].startswith("XINFO") and reply[:1] in (
            [b"length"],
            ["length"],
            [b"name"],
            ["name"],
        ):
            names = [name.decode() if isinstance(name, bytes) else name for name in reply[::2]]
            return masked(dict(zip(names, reply[1::2], strict=True)), words)
        if words[0] == "XPENDING" and len(words) > 3 and len(reply) == 4:
            if isinstance(reply[2], int):
                return [*reply[:2], 0, reply[3]]
        return [masked(item, words) for item in reply]
    if isinstance(reply, tuple):
        return tuple(masked(item, words) for item in reply)
    return 0 if isinstance(reply, int) and reply > UNIX_MS else reply


def replied(store: Any, words: list[str], options: dict[str, Any]) -> Any:
    try:
        return masked(store.execute_command(*words, **options), words)
    except (redis.ResponseError, tidelog.ResponseError) as error:
        return f"error: {error}"
    except (TypeError, ValueError, LookupError):
        if isinstance(store, tidelog.Store):
            raise
        return "cannot be read"


@pytest.mark.parametrize("decode", [False, True])
@pytest.mark.parametrize("with_options", [False, True])
@pytest.mark.parametrize("one_word", [False, True])
def test_every_form_has_redis_pys_reply(
    client: redis.Redis, db: tidelog.Store, one_word: bool, with_options: bool, decode: bool
) -> None:
    place = client.connection_pool.connection_kwargs["path"]
    ours: Any = type(db)(inside.core(db), decode=decode)
    differences = []
    with redis.Redis(unix_socket_path=place, protocol=2, decode_responses=decode) as theirs:
        for store in (theirs, ours):
            store.set("string", "v")
        for line in LINES:
            words = line.split()
            options: dict[str, Any] = {}
            if with_options:
                for word in words:
                    options |= OPTIONS.get(word, {})
            if with_options and words[0] == "XPENDING" and len(words) > 3:
                options["parse_detail"] = True
            if one_word and words[0] in ("XINFO", "XGROUP"):
                words[:2] = [" ".join(words[:2])]
            theirs_, ours_ = (replied(store, words, options) for store in (theirs, ours))
            # Not told of JUSTID, redis-py takes the characters of an ID for an entry.
            garbled = "JUSTID" in words and not with_options and "('" in repr(theirs_)
            if theirs_ != ours_ and theirs_ != "cannot be read" and not garbled:
                differences.append(
                    f"{line} {options or ''}\n  redis   {theirs_}\n  tidelog {ours_}"
                )
    assert not differences, "\n".join(differences)


def test_what_redis_py_has_to_be_told_is_told_by_the_reply(db: tidelog.Store) -> None:
    db.xadd("s", {"a": 1}, id="1-1")
    db.xgroup_create("s", "g", id="0")
    call = db.execute_command
    assert call("XPENDING", "s", "g", "-", "+", 10) == []
    db.xreadgroup("g", "c", {"s": ">"})
    (row,) = call("XPENDING", "s", "g", "-", "+", 10)
    assert (row["message_id"], row["consumer"], row["times_delivered"]) == (b"1-1", b"c", 1)
    assert call("XCLAIM", "s", "g", "d", 0, "1-1", "JUSTID") == [b"1-1"]
    assert call("XCLAIM", "s", "g", "d", 0, "9-9", "JUSTID") == []
    assert call("XAUTOCLAIM", "s", "g", "e", 0, "-", "JUSTID") == [b"0-0", [b"1-1"], []]
    assert call("XPENDING", "s", "g")["pending"] == 1
