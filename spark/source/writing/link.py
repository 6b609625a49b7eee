"""Link: one connection to the server, by redis-py, that never sends anything twice by itself.

redis-py's client would repeat a command after a broken connection. A transaction must not be repeated blindly, so this
uses redis-py's connections and leaves the repeating to `chunks.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from redis.backoff import NoBackoff
from redis.connection import ConnectionPool
from redis.exceptions import RedisError, ResponseError
from redis.retry import Retry

from tidelog.spark.source.writing.options import WriteOptions

MULTI: Final = b"*1\r\n$5\r\nMULTI\r\n"
EXEC: Final = b"*1\r\n$4\r\nEXEC\r\n"


class Link:
    """A connection. It connects when it is used first, and again after `close`."""

    def __init__(self, options: WriteOptions) -> None:
        own = {"username": options.username, "password": options.password}
        pool = ConnectionPool.from_url(
            options.url,
            protocol=2,
            socket_timeout=options.timeout_s,
            socket_connect_timeout=options.timeout_s,
            retry=Retry(NoBackoff(), 0),
            **{name: value for name, value in own.items() if value is not None},
        )
        self._connection: Any = pool.make_connection()

    def call(self, *command: str | bytes) -> Any:
        """The reply to one command. Raises RedisError."""
        return raised(self.calls([command])[0])

    def calls(self, commands: Sequence[Sequence[str | bytes]]) -> list[Any]:
        """The replies to commands sent together. An error reply is an item. Raises RedisError: the link broke."""
        if commands:
            self._send(b"".join(self._connection.pack_commands(commands)))
        return [self._reply() for _ in commands]

    def transaction(self, packed: Sequence[bytes], *last: str | bytes) -> list[Any] | None:
        """Send MULTI, packed commands, one more command, EXEC. Return the replies; None if a watched key was changed.

        Raises RedisError: the server refused the whole, or the link broke.
        """
        final = self._connection.pack_command(*last)
        self._send(b"".join([MULTI, *packed, *final, EXEC]))
        queued = [self._reply() for _ in range(len(packed) + 2)]
        replies: list[Any] | None | RedisError = self._reply()
        for reply in queued:
            raised(reply)  # raise the cause, and not the EXECABORT that follows from it
        return None if replies is None else list(raised(replies))

    def close(self) -> None:
        self._connection.disconnect()

    def _send(self, data: bytes) -> None:
        self._connection.connect()  # does nothing if it is connected
        self._connection.send_packed_command([data])

    def _reply(self) -> Any:
        try:
            return self._connection.read_response()
        except ResponseError as error:
            return error


def raised(reply: Any) -> Any:
    """A reply that is no error."""
    if isinstance(reply, RedisError):
        raise reply
    return reply
