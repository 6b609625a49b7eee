"""Append-only files with changed bytes, also behind a dump: one line and an exit code, or a sound state."""

from __future__ import annotations

import random
from pathlib import Path

from tests.engine.rdb.loaded import check, written
from tests.engine.rdb.test_damage import changed
from tests.oracle.played import played

from tidelog.engine.commands.rewrite import Lost, Target, rewrite
from tidelog.engine.keys.state import State
from tidelog.engine.rdb.write import RdbTarget
from tidelog.resp.commands import encoded
from tidelog.tools import exits
from tidelog.tools.failed import Failed
from tidelog.tools.importing.filters import Filter
from tidelog.tools.importing.from_aof import take_file
from tidelog.tools.importing.keys import Keys
from tidelog.tools.importing.report import Report

NOW = 1_800_000_000_000
CODES = {exits.DAMAGED, exits.NEWER, exits.REFUSED}


class InMemory:
    """A state that is never folded."""

    def __init__(self) -> None:
        self.state = State()

    def fold(self) -> None: ...


def taken(path: Path, data: bytes) -> bool:
    path.write_bytes(data)
    folding = InMemory()
    keys = Keys(folding, Report())
    try:
        take_file(path, keys, Filter(), NOW)
    except Failed as error:
        assert error.exit_code in CODES
        assert "\n" not in error.format_message()
        return False
    check(folding.state)
    return True


def files(seed: int, length: int = 30) -> tuple[bytes, bytes]:
    """(a log, a log with an image in front) of random states."""
    first, _ = played(random.Random(seed), length)
    second, _ = played(random.Random(seed + 1), length // 2)
    commands = rewrite(second.state, Lost(), Target.REDIS_8_8)
    log = b"".join(map(encoded, commands))
    image = written(first.state, RdbTarget.REDIS_8_8)[0]
    return log, image + log


def fuzz(path: Path, seeds: range, each: int) -> tuple[int, int]:
    good = 0
    for seed in seeds:
        r = random.Random(seed)
        for data in files(seed):
            if len(data) < 20:
                continue
            good += sum(taken(path, changed(data, r)) for _ in range(each))
    return good, len(seeds) * 2 * each


def test_changed_files(tmp_path: Path) -> None:
    good, tried = fuzz(tmp_path / "a.aof", range(4), 25)
    assert 5 < good < tried - 20, (good, tried)
