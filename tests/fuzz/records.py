"""Records that are no effects, or effects that do not fit, in frames whose checksums hold.

Recovery reads every input. One in four is also a store on the disk, for one of the commands that read it.
"""

from __future__ import annotations

import random
from pathlib import Path

from tests.fuzz.logs import Body, Writing, bodies, ended, packed
from tests.fuzz.outcome import REFUSED, TAKEN, Outcome
from tests.fuzz.shell import run_on
from tests.fuzz.twist import twisted

from tidelog.aof.errors import AofError
from tidelog.aof.reading.reader import FrameTuple, Replay
from tidelog.engine.effects.apply import applier
from tidelog.engine.errors import CorruptBlock
from tidelog.engine.keys.state import State

ON_DISK_EACH = 8
COMMANDS = (
    ["aof", "verify"],
    ["aof", "dump"],
    ["aof", "dump", "--json"],
    ["aof", "dump", "--format", "json"],
    ["aof", "dump", "--format", "msgpack"],
    ["aof", "dump", "--format", "resp"],
    ["aof", "dump", "--reverse", "--hex", "--frames"],
    ["aof", "dump", "--key", "s*", "--group", "g", "--consumer", "alice"],
    ["aof", "dump", "--id", "1-0..30-0", "--unit"],
    ["aof", "dump", "--command", "XADD"],
    ["aof", "stats"],
    ["aof", "stats", "--json", "--by", "minute"],
    ["aof", "export", "--resp"],
    ["why"],
    ["why"],
    ["repair"],
    ["state", "--json"],
    ["info"],
    ["digest"],
)


def twist_one(frames: list[Body], r: random.Random) -> list[Body]:
    """The frames, with one to three twists of the records of one of them."""
    at = r.randrange(len(frames))
    records = list(frames[at].records)
    for _ in range(r.choice((1, 1, 1, 2, 3))):
        found = twisted(records, r)
        records = found if isinstance(found, list) and found else records
    if r.random() < 0.9:
        records = ended(records)
    now = frames[at].now
    if r.random() < 0.05:
        now = r.choice((0, 1, (1 << 63) - 1, (1 << 64) - 1))
    return [*frames[:at], Body(now, records), *frames[at + 1 :]]


def written(frames: list[Body]) -> Writing:
    made = Writing()
    made.roll()
    for body in frames:
        data = packed(body.records)
        made.frame(body.now, data, len(body.records))
    made.end()
    return made


def replayed(frames: list[Body]) -> bool:
    """Apply the records as recovery does. Returns whether all were taken."""
    state = State()
    replay = Replay(applier(state))
    lsn = 1
    fields: list[FrameTuple] = []
    for body in frames:
        count = len(body.records)
        fields.append((80, lsn, count, body.now, 0, 0, packed(body.records)))
        lsn += count
    try:
        replay.run(Path("1.aof"), fields)
    except (AofError, CorruptBlock) as error:
        assert "\n" not in str(error), error
        return False
    return True


def one(seed: int, r: random.Random, place: Path) -> Outcome:
    frames = twist_one(bodies(seed), r)
    outcome = TAKEN if replayed(frames) else REFUSED
    if not r.randrange(ON_DISK_EACH):
        run_on(place, written(frames).files, r.choice(COMMANDS))
    return outcome
