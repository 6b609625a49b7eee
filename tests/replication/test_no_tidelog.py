"""A leader that is no tidelog: the follower says what it is, and what to run instead."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.inside import core
from tests.oracle.server import EIGHT, SEVEN, Release
from tests.server.real_redis import Raw, real_redis

import tidelog
from tidelog.replication.errors import Refused
from tidelog.replication.follower import Follower
from tidelog.resp.commands import encoded


@pytest.mark.parametrize("release", [SEVEN, EIGHT], ids=lambda release: str(release.version))
def test_a_redis(tmp_path: Path, release: Release) -> None:
    with tidelog.open(tmp_path / "s") as db, real_redis(release) as (server, _), Raw(server) as raw:
        roles = core(db).roles
        assert roles is not None
        roles.follow("127.0.0.1", 6379)
        follower = Follower(core(db))
        line = raw.ask(encoded(follower.hello()))
        assert line.startswith(b"-ERR unknown command")
        with pytest.raises(Refused, match=r"no tidelog, .* run `tidelog import --follow`"):
            follower.answered(line, 0.0)
