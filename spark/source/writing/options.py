"""The options of a write, checked once, where the write is planned."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple
from urllib.parse import urlsplit

from redis import ConnectionPool

from tidelog.spark.errors import TidelogSparkError

SCHEMES: Final = ("redis", "rediss", "unix")
STREAM_COLUMN: Final = "stream"
CHUNK_ROWS: Final = 1_000
CHUNK_ROWS_MAX: Final = 100_000
TIMEOUT_S: Final = 30.0
RETRY_S: Final = 30.0

# The names as users write them. Spark passes them on in lower case.
OF_EVERY_WRITE: Final = (
    "url", "username", "password", "stream", "streamColumn", "idColumn", "chunkRows", "timeoutSeconds",
    "retrySeconds",
)  # fmt: skip
OF_A_BATCH: Final = ("jobId", "txnAppId", "txnVersion")
TXN_VERSION_MAX: Final = (1 << 63) - 1
# Options of Spark itself, which it also passes to the sink.
OF_SPARK: Final = ("checkpointlocation", "queryname")


class WriteOptions(NamedTuple):
    """The options of one write.

    url             where the server is: redis://HOST:PORT/DB, rediss:// (TLS) or unix://
    username, password   for a server that asks for them and a URL that does not have them
    stream          the stream of every row; None: each row names its own in the column `stream_column`
    id_column       the column with the entries' IDs; None: the server makes them
    job_id          the name under which a batch write may be run again; None: it has none
    txn             (application, version) of a batch write that is made once; None: it has none
    chunk_rows      rows of one transaction
    timeout_s       for one answer of the server
    retry_s         how long a task tries to reach the server again before it fails
    """

    url: str
    username: str | None
    password: str | None
    stream: str | None
    stream_column: str
    id_column: str | None
    job_id: str | None
    txn: tuple[str, int] | None
    chunk_rows: int
    timeout_s: float
    retry_s: float

    @property
    def place(self) -> str:
        """The server, for error texts: without user and password."""
        return without_credentials(self.url)


def write_options(options: Mapping[str, str], *, streaming: bool) -> WriteOptions:
    """Check the options of a write. Raises TidelogSparkError TIDELOG_OPTION, which names the option."""
    known = {name.lower(): name for name in (*OF_EVERY_WRITE, *(() if streaming else OF_A_BATCH))}
    given: dict[str, str] = {}
    for name, value in options.items():
        if name.lower() in known:
            given[known[name.lower()]] = value
        elif streaming and name.lower() in (only := {each.lower(): each for each in OF_A_BATCH}):
            raise _wrong(
                only[name.lower()],
                "is only for batch writes; a streaming query has an ID of its own",
            )
        elif name.lower() not in OF_SPARK:
            raise _wrong(
                name, f"is not an option of a write; the options are {', '.join(known.values())}"
            )

    if "stream" in given and "streamColumn" in given:
        raise _wrong(
            "streamColumn",
            "cannot be used together with the option stream, which writes all rows to one stream",
        )
    for name in ("stream", "streamColumn", "idColumn", "jobId", "txnAppId"):
        if name in given and not given[name]:
            raise _wrong(name, "is empty")
    for name in ("jobId", "txnAppId"):
        if any(character.isspace() for character in given.get(name, "")):
            raise _wrong(name, "must not contain white space")
    found = WriteOptions(
        given.get("url", ""),
        given.get("username"),
        given.get("password"),
        given.get("stream"),
        given.get("streamColumn", STREAM_COLUMN),
        given.get("idColumn"),
        given.get("jobId"),
        _txn(given),
        _number(given, "chunkRows", CHUNK_ROWS, CHUNK_ROWS_MAX),
        _seconds(given, "timeoutSeconds", TIMEOUT_S, least="above 0"),
        _seconds(given, "retrySeconds", RETRY_S, least="of 0 or more"),
    )
    _check_url(found.url)
    return found


def without_credentials(url: str) -> str:
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"


def _wrong(name: str, fault: str) -> TidelogSparkError:
    return TidelogSparkError("TIDELOG_OPTION", f"option {name} {fault}")


def _check_url(url: str) -> None:
    if not url:
        raise _wrong(
            "url",
            "is missing: give the address of a served store or of Redis, such as redis://HOST:PORT/DB",
        )
    try:
        if urlsplit(url).scheme not in SCHEMES:
            raise ValueError
        ConnectionPool.from_url(url)  # only parses the URL; does not connect
    except ValueError:
        # Do not show the cause, because its text may contain the password.
        raise _wrong(
            "url", "cannot be parsed by redis-py: give redis://HOST:PORT/DB, rediss:// or unix://"
        ) from None


def _txn(given: Mapping[str, str]) -> tuple[str, int] | None:
    for one, other in (("txnAppId", "txnVersion"), ("txnVersion", "txnAppId")):
        if one in given and other not in given:
            raise _wrong(one, f"needs the option {other}, too")
    if "txnAppId" not in given:
        return None
    if "jobId" in given:
        raise _wrong("jobId", "cannot be used together with the option txnAppId")
    return given["txnAppId"], _number(given, "txnVersion", 0, TXN_VERSION_MAX, least=0)


def _number(given: Mapping[str, str], name: str, default: int, most: int, *, least: int = 1) -> int:
    text = given.get(name, str(default))
    if not (text.isascii() and text.isdecimal() and least <= int(text) <= most):
        raise _wrong(name, f"is {text!r}, but must be a number from {least} to {most}")
    return int(text)


def _seconds(given: Mapping[str, str], name: str, default: float, *, least: str) -> float:
    text = given.get(name, str(default))
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds < float("inf") or (seconds == 0 and least == "above 0"):
        raise _wrong(name, f"is {text!r}, but must be a number of seconds {least}")
    return seconds
