"""The objects that every command goes through keep their attributes where CPython reads them fastest."""

from __future__ import annotations

from tests.server.conftest import Running

from tidelog.server.connection import Connection

# From this number of attributes on, CPython 3.11 keeps those of an instance in a dict of its own. Each access is then
# slower; for a server that was 1.5% of all instructions.
TOO_MANY = 30


def test_few_attributes(server: Running) -> None:
    with server.client() as client:
        assert client.ping()
        (session,) = server.server.sessions.values()
        assert isinstance(session.connection, Connection)
        for each in server.server, session.connection, server.server.turns:
            assert len(vars(each)) < TOO_MANY, type(each)
