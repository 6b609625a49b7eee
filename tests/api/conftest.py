"""The fixtures of the store."""

from tests.store.conftest import client, clock, db, server

__all__ = ["client", "clock", "db", "server"]
