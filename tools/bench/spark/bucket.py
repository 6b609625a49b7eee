"""A snapshot in an object store, read in place: its reads are counted beside those of a local file."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

from pyarrow import fs

from tidelog.snapshot.copying import copy_snapshot
from tidelog.snapshot.place import place_of
from tidelog.spark.environment import environment
from tidelog.tools.bench.figure import Bound, Figure
from tidelog.tools.bench.spark.planning import Counted, counted, read_of
from tidelog.tools.bench.spark.setting import STREAMS, Setting, name_of, store

ENTRIES = 500_000
ONE = 42
CREDENTIALS = {
    "AWS_ACCESS_KEY_ID": "bench",
    "AWS_SECRET_ACCESS_KEY": "bench",
    "AWS_EC2_METADATA_DISABLED": "true",
}
LOCAL = "a local file"


def rows(setting: Setting) -> Iterator[Figure]:
    try:
        from tidelog.tools.bench.spark.s3 import served  # here: moto may be missing
    except ImportError as error:
        setting.bench.missing["moto"] = str(error)
        return
    count = setting.bench.scaled(ENTRIES)
    made = setting.bench.once("spark-bucket", lambda path: store(path, STREAMS, count // STREAMS))
    (path,) = read_of(str(made)).paths
    with environment(CREDENTIALS), served() as endpoint:  # pyarrow looks for credentials there
        url = _url(endpoint, Path(path).name)
        with closing(place_of(path)) as source, closing(place_of(url)) as target:
            copy_snapshot(source, target)
        for stream, what in ((None, "all"), (name_of(ONE), "one")):
            shown = f"{what} of {STREAMS} streams, {count:,} entries"
            yield from _figures(what, counted(url, stream), counted(path, stream), shown)


def _figures(what: str, remote: Counted, local: Counted, shown: str) -> Iterator[Figure]:
    if remote.entries != local.entries:
        raise RuntimeError(f"the bucket has {remote.entries} entries, the file {local.entries}")
    name = "the whole snapshot" if what == "all" else "one stream"
    shown = f"{shown}; planning included"
    yield Figure(
        f"Spark, {name} from a bucket, bytes",
        "MB",
        remote.nbytes / 1e6,
        {LOCAL: local.nbytes / 1e6, "the file": local.file_bytes / 1e6},
        (Bound(1.1, LOCAL, most=True),),
        shown,
    )
    yield Figure(
        f"Spark, {name} from a bucket, requests",
        "reads",
        remote.reads,
        {LOCAL: local.reads},
        (Bound(1.1, LOCAL, most=True),),
        shown,
    )


def _url(endpoint: str, path: str) -> str:
    """The URL of a directory in a new bucket."""
    # The servers of one process share their buckets, and stores made by two runs can have snapshots of the same name.
    bucket = f"bench-{secrets.token_hex(8)}"
    query = f"?endpoint_override={endpoint}&scheme=http&region=us-east-1"
    files, _ = fs.FileSystem.from_uri(f"s3://{bucket}{query}&allow_bucket_creation=true")
    files.create_dir(bucket)
    return f"s3://{bucket}/{path}{query}"
