"""A source that grows, shrinks or vanishes while tidelog import reads it: a whole store of it, or one line and none."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest
from tests.engine.rdb.loaded import written
from tests.oracle.played import played
from tests.tools.conftest import Run
from tests.tools.test_import_fuzz import files

from tidelog.engine.rdb.write import RdbTarget
from tidelog.resp.commands import encoded
from tidelog.tools import exits
from tidelog.tools.importing import pieces

PIECE_BYTES = 100
MORE = encoded([b"SET", b"more", b"1"])


def sources() -> dict[str, bytes]:
    state, _ = played(random.Random(2), 60)
    log, both = files(2, 60)
    return {
        "a dump": written(state.state, RdbTarget.REDIS_8_8)[0],
        "a log": log,
        "an image and a log": both,
    }


SOURCES = sources()


def vanishes(path: Path, read: int) -> None:
    path.unlink()


def grows(path: Path, read: int) -> None:
    with path.open("ab") as file:
        file.write(MORE)


def shrinks(path: Path, read: int) -> None:
    os.truncate(path, read + (path.stat().st_size - read) // 2)


def cut(path: Path, read: int) -> None:
    """Shrink it to less than was read."""
    os.truncate(path, read // 2)


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("act", [vanishes, grows, shrinks, cut])
def test_a_source_changes_while_it_is_read(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, source: str, act: object
) -> None:
    assert callable(act)
    data = SOURCES[source]
    count = len(data) // PIECE_BYTES
    assert count > 8
    path = tmp_path / "source"
    path.write_bytes(data)
    assert run("import", tmp_path / "t", path).code == exits.OK
    whole = run("digest", tmp_path / "t").out
    pull = pieces.Pieces.pull
    monkeypatch.setattr(pieces, "PIECE_BYTES", PIECE_BYTES)
    codes = set()
    for at in (1, count // 3, count // 2, count - 2):
        path.write_bytes(data)
        pulled: list[int] = []

        def pulling(self: pieces.Pieces) -> bytes:
            piece = pull(self)
            pulled.append(len(piece))
            if len(pulled) == at:  # noqa: B023
                act(path, sum(pulled))  # noqa: B023
            return piece

        monkeypatch.setattr(pieces.Pieces, "pull", pulling)
        target = tmp_path / f"{at}"
        done = run("import", target, path)
        monkeypatch.setattr(pieces.Pieces, "pull", pull)
        assert len(pulled) > at
        codes.add(done.code)
        if done.code == exits.OK:
            assert run("verify", target).code == exits.OK
            if act in (vanishes, grows):  # what comes later is not read
                assert run("digest", target).out == whole, done
                assert "ends in the middle" not in done.out
        else:
            assert (done.code, done.err.count("\n")) == (exits.DAMAGED, 1), done
            assert str(path) in done.err
            assert os.listdir(target) == ["LOCK"]
    if act in (vanishes, grows):
        assert codes == {exits.OK}
    elif source == "a dump":
        assert codes == {exits.DAMAGED}
