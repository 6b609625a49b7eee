"""Remote: a snapshot at a URL, read in place and written through `pyarrow.fs`.

    s3://bucket/path?endpoint_override=host:9000&scheme=http&region=eu-west-1
    gs://bucket/path
    hdfs://namenode:8020/path

Credentials come from the environment, as pyarrow documents it. Credentials in a URL work too, and no error shows them.
Local files and S3 are tested; the other schemes are not. pyarrow is optional, so it is imported when the first URL is
opened.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, Final
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

from tidelog.snapshot.errors import PackageMissing, SnapshotRefused, SnapshotUnreachable

# The fewest bytes of a request. With 64 KiB, one stream of a hundred costs 1.3 times the bytes of a local file, and as
# many requests as now. With 16 KiB, a snapshot of many small streams costs more requests.
REMOTE_READ_BYTES: Final = 32 << 10
REASON_LENGTH_MAX: Final = 300
# A request to S3 fails after STALL_S without a byte, and is sent at most ATTEMPTS times. Without these limits, pyarrow
# would go on for 100 s.
STALL_S = 10.0
ATTEMPTS = 3
S3_OPTIONS: Final = frozenset(("region", "scheme", "endpoint_override"))
S3_FLAGS: Final = frozenset(("allow_bucket_creation", "allow_bucket_deletion"))
SECRETS: Final = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN")


class RemoteFolder:
    """A folder at a URL: its file system, with bounds on how long a request takes, and errors without credentials.

    name     the URL without credentials and options
    files    the file system of pyarrow         path    of the folder there
    fs       the module pyarrow.fs
    """

    def __init__(self, url: str) -> None:
        """Raises SnapshotRefused if the URL cannot be used, PackageMissing without pyarrow, SnapshotUnreachable if the
        region cannot be looked up.
        """
        self._url = url
        parts = urlsplit(url)
        host = parts.netloc.rpartition("@")[2]
        self.name = f"{parts.scheme}://{host}{parts.path.rstrip('/')}"
        try:
            from pyarrow import fs
        except ImportError:
            raise PackageMissing(
                f"{self.name}: reading URLs needs pyarrow; install it with: pip install 'tidelog[spark]'"
            ) from None
        try:
            files, path = fs.FileSystem.from_uri(url)
            if parts.scheme == "s3":
                files = _bounded(fs, parts, files.region) or files
        except OSError as error:
            raise SnapshotUnreachable(self.name, self.reason(error)) from None
        except ValueError as error:
            raise SnapshotRefused(
                f"{self.name}: the URL cannot be used ({self.reason(error)})"
            ) from None
        self.fs: Any = fs
        self.files: Any = files
        self.path: str = path.rstrip("/")
        if not self.path:
            raise SnapshotRefused(f"{self.name}: the URL names no directory")

    @property
    def has_directories(self) -> bool:
        """Whether there are directories. Object stores have none: creating one would only write an empty object."""
        return self.files.type_name not in ("s3", "gcs")

    def at(self, file: str, offset: int | None) -> str:
        """A file, or a byte of it, for errors."""
        place = f"{self.name}/{file}" if file else self.name
        return place if offset is None else f"{place}, byte {offset}"

    @contextmanager
    def telling(self, file: str, offset: int | None = None) -> Iterator[None]:
        """Turn an error of the file system into one line. FileNotFoundError and NotADirectoryError pass through."""
        try:
            yield
        except (FileNotFoundError, NotADirectoryError):
            raise
        except (OSError, ValueError) as error:
            raise SnapshotUnreachable(self.at(file, offset), self.reason(error)) from None

    def reason(self, error: BaseException) -> str:
        """The first line of an error, without credentials."""
        return reason_of(self._url, error)


class RemotePlace:
    """A `snapshot.place.Place` at a URL. It can also be written to."""

    least = REMOTE_READ_BYTES

    def __init__(self, url: str) -> None:
        """Raises as RemoteFolder does."""
        self._folder = RemoteFolder(url)
        self.name = self._folder.name
        self._fs, self._path = self._folder.files, self._folder.path
        self._telling, self._at = self._folder.telling, self._folder.at
        self._files: dict[str, Any] = {}

    # --- reading

    def size(self, file: str) -> int:
        opened = self._file(file)
        with self._telling(file, 0):
            return int(opened.size())

    def read_at(self, file: str, offset: int, nbytes: int) -> bytes:
        opened = self._file(file)
        with self._telling(file, offset):
            wanted = max(min(nbytes, opened.size() - offset), 0)
            data = bytes(opened.read_at(wanted, offset)) if wanted else b""
        if len(data) != wanted:
            raise SnapshotUnreachable(
                self._at(file, offset + len(data)),
                f"the read ended after {len(data)} of {wanted} bytes",
            )
        return data

    def names(self) -> list[str]:
        with self._telling("", None):
            found = self._fs.get_file_info(self._folder.fs.FileSelector(self._path))
        return sorted(str(info.base_name) for info in found)

    def hold(self) -> AbstractContextManager[None]:
        return nullcontext()

    def close(self) -> None:
        while self._files:
            try:
                self._files.popitem()[1].close()
            except OSError:  # ignore the error: the file was only read
                pass

    def _file(self, name: str) -> Any:
        found = self._files.get(name)
        if found is None:
            with self._telling(name, None):
                found = self._files[name] = self._fs.open_input_file(self._at_path(name))
        return found

    # --- writing

    def make_directory(self) -> None:
        """Create the directory, where the file system has directories. Raises SnapshotUnreachable."""
        if self._folder.has_directories:
            with self._telling("", None):
                self._fs.create_dir(self._path, recursive=True)

    def write(self, file: str, pieces: Iterator[bytes]) -> None:
        """Create or replace a file. In an object store the file appears only when all pieces are written.

        Raises SnapshotUnreachable, and what `pieces` raises.
        """
        opened = self._files.pop(file, None)
        if opened is not None:
            opened.close()
        offset = 0
        with self._telling(file, 0):
            stream = self._fs.open_output_stream(self._at_path(file))
        try:
            for piece in pieces:
                with self._telling(file, offset):
                    stream.write(piece)
                offset += len(piece)
        finally:
            with self._telling(file, offset):
                stream.close()

    def delete(self, file: str) -> None:
        """Delete a file. Raises FileNotFoundError, SnapshotUnreachable."""
        with self._telling(file, None):
            self._fs.delete_file(self._at_path(file))

    def _at_path(self, file: str) -> str:
        return f"{self._path}/{file}"


def reason_of(url: str, error: BaseException) -> str:
    """The first line of an error at a URL or path, without the credentials of the URL and the environment."""
    parts = urlsplit(url)
    found = [each for each in (parts.username, parts.password) if each]
    secrets = found + [unquote(each) for each in found]
    secrets += [os.environ[name] for name in SECRETS if os.environ.get(name)]
    text = (str(error).strip() or type(error).__name__).splitlines()[0]
    for secret in secrets:
        text = re.sub(rf"(?<!\w){re.escape(secret)}(?!\w)", "***", text)
    text = re.sub(r"//[^/@\s]+@", "//", text)
    return text if len(text) <= REASON_LENGTH_MAX else text[:REASON_LENGTH_MAX] + "..."


def _bounded(fs: Any, url: SplitResult, region: str) -> Any:
    """The S3 file system of a URL with bounds on how long a request takes, which the URL itself cannot give.

    None if the URL has an option that is not known here.
    """
    options: dict[str, Any] = dict(parse_qsl(url.query, keep_blank_values=True))
    if options.keys() - S3_OPTIONS - S3_FLAGS:
        return None
    for name in S3_FLAGS & options.keys():
        options[name] = options[name].lower() == "true"
    options["region"] = region
    if url.username:
        options["access_key"] = unquote(url.username)
        options["secret_key"] = unquote(url.password or "")
    return fs.S3FileSystem(
        connect_timeout=STALL_S,
        request_timeout=STALL_S,
        retry_strategy=fs.AwsStandardS3RetryStrategy(max_attempts=ATTEMPTS),
        **options,
    )
