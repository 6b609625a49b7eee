"""A file system with one file, which notes in order what is written to it and when it is flushed.

A loop device over the file shows what a file system of the kernel does to its disk. It speaks the protocol of /dev/fuse
itself (linux/fuse.h, 7.31), as far as one file of a fixed size needs it: all numbers little-endian,

    request   len u32, opcode u32, unique u64, node u64, uid u32, gid u32, pid u32, padding u32, arguments
    answer    len u32, error i32, unique u64, result

A process of its own answers, since the kernel waits for it in the middle of other calls. It handles one request after
another, so what it notes is an order. Other processes note events of their own in between.
"""

from __future__ import annotations

import ctypes
import errno
import os
import select
import signal
import struct
from collections.abc import Callable
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Final, NamedTuple

NAME: Final = "disk"  # of the file
DEVICE: Final = "/dev/fuse"
REQUEST: Final = struct.Struct("<IIQQIIII")
ANSWER: Final = struct.Struct("<IiQ")
ATTRIBUTES: Final = struct.Struct("<QQQQQQIIIIIIIIII")
ENTRY: Final = struct.Struct("<QQQQII")  # before the attributes
VALID: Final = struct.Struct("<QII")  # before the attributes
OPENED: Final = struct.Struct("<QII")
INIT: Final = struct.Struct("<IIIIHHIIHHI28x")
TRANSFER: Final = struct.Struct("<QQIIQII")  # of a read or a write
WRITTEN: Final = struct.Struct("<II")
STATFS: Final = struct.Struct("<QQQQQIIII24x")
assert (REQUEST.size, ANSWER.size, ATTRIBUTES.size, INIT.size) == (40, 16, 88, 64)
assert (ENTRY.size, TRANSFER.size, STATFS.size) == (40, 40, 80)

LOOKUP, FORGET, GETATTR, SETATTR, OPEN, READ, WRITE, STATFS_ = 1, 2, 3, 4, 14, 15, 16, 17
RELEASE, FSYNC, FLUSH, FIRST = 18, 20, 25, 26
OPENDIR, RELEASEDIR, INTERRUPT, FORGETS = 27, 29, 36, 42
UNANSWERED: Final = (FORGET, FORGETS, INTERRUPT)
ROOT: Final = 1
FILE: Final = 2
WRITE_BYTES_MAX: Final = 128 << 10
BUFFER: Final = WRITE_BYTES_MAX + 4096
BLOCK: Final = 4096
SECONDS: Final = 3600  # the kernel may believe what it was told for so long
MS_NOSUID, MS_NODEV = 2, 4


class Written(NamedTuple):
    """Bytes were written."""

    offset: int
    data: bytes


class Flushed(NamedTuple):
    """Everything before is on the medium."""


class Noted(NamedTuple):
    """Another process noted an event."""

    event: Any


Event = Written | Flushed | Noted


class CannotServe(Exception):
    """There is no FUSE here. The text is the reason."""


class BlockFile:
    """The file, mounted below `place`, an existing directory. Only root may make one. Raises CannotServe."""

    def __init__(self, place: Path, size: int) -> None:
        self.path = place / NAME
        context = get_context("fork")
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(
            target=_serve, args=(place, size, self._pipe, theirs), name="tidelog-crash-blocks"
        )
        self._process.start()
        theirs.close()
        try:
            fault = self._pipe.recv()
        except EOFError:
            fault = "the process that answers its requests ended"
        if fault:
            self.close()
            raise CannotServe(fault)

    def note(self, event: Any) -> None:
        """Note an event. It is in its place in the order when this returns."""
        self._pipe.send(event)
        self._pipe.recv()

    def events(self) -> list[Event]:
        """The events since the last call."""
        self._pipe.send(None)
        found: list[Event] = self._pipe.recv()
        return found

    def close(self) -> None:
        """End. The file must not be mounted any more; its own mount ends with the process that answers."""
        self._pipe.close()
        self._process.join()
        self._process.close()


def _serve(place: Path, size: int, ours: Connection, pipe: Connection) -> None:
    ours.close()
    # Ctrl-C ends the asker, and that ends this process.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        device = _mounted(place)
    except OSError as error:
        pipe.send(f"{error.filename or DEVICE}: {error.strerror}")
        return
    pipe.send("")
    try:
        _Server(size).run(device, pipe)
    finally:
        os.close(device)


def _mounted(place: Path) -> int:
    """Mount it, and return the descriptor of its requests. Raises OSError."""
    device = os.open(DEVICE, os.O_RDWR)
    libc = ctypes.CDLL(None, use_errno=True)
    options = f"fd={device},rootmode=40000,user_id=0,group_id=0"
    flags = ctypes.c_ulong(MS_NOSUID | MS_NODEV)
    if libc.mount(b"tidelog", os.fsencode(place), b"fuse", flags, options.encode()) != 0:
        number = ctypes.get_errno()
        os.close(device)
        raise OSError(number, os.strerror(number), "mount of FUSE")
    return device


class _Server:
    """Answers requests for one file in memory."""

    def __init__(self, size: int) -> None:
        self._content = bytearray(size)
        self._events: list[Event] = []
        self._answers: dict[int, Callable[[int, bytes], bytes]] = {
            FIRST: self._init,
            LOOKUP: self._lookup,
            **dict.fromkeys((GETATTR, SETATTR), self._valid),
            **dict.fromkeys((OPEN, OPENDIR), lambda node, _: OPENED.pack(0, 0, 0)),
            **dict.fromkeys((FLUSH, RELEASE, RELEASEDIR), lambda node, _: b""),
            READ: self._read,
            WRITE: self._write,
            FSYNC: self._fsync,
            STATFS_: lambda node, _: STATFS.pack(size // BLOCK, 0, 0, 1, 0, BLOCK, 255, BLOCK, 0),
        }

    def run(self, device: int, pipe: Connection) -> None:
        """Answer until the asker is gone, or the file is unmounted."""
        while True:
            ready, _, _ = select.select([device, pipe.fileno()], [], [])
            if device in ready:
                try:
                    request = os.read(device, BUFFER)
                except OSError as error:
                    if error.errno == errno.ENODEV:
                        return  # unmounted
                    if error.errno in (errno.EINTR, errno.ENOENT, errno.EAGAIN):
                        continue  # the request was taken back
                    raise
                self._answer(device, request)
            else:
                try:
                    event = pipe.recv()
                except EOFError:
                    return
                if event is None:
                    pipe.send(self._events)
                    self._events = []
                else:
                    self._events.append(Noted(event))
                    pipe.send(None)

    def _answer(self, device: int, request: bytes) -> None:
        _, opcode, unique, node, *_ = REQUEST.unpack_from(request)
        if opcode in UNANSWERED:
            return
        code, result = 0, b""
        answer = self._answers.get(opcode)
        if answer is None:
            code = errno.ENOSYS
        else:
            try:
                result = answer(node, request[REQUEST.size :])
            except OSError as error:
                code = error.errno or errno.EIO
        head = ANSWER.pack(ANSWER.size + len(result), -code, unique)
        try:
            os.write(device, head + result)
        except FileNotFoundError:
            pass  # the request was taken back

    def _init(self, node: int, arguments: bytes) -> bytes:
        return INIT.pack(7, 31, 0, 0, 12, 9, WRITE_BYTES_MAX, 1, 0, 0, 0)

    def _lookup(self, node: int, arguments: bytes) -> bytes:
        if arguments.rstrip(b"\0") != NAME.encode():
            raise OSError(errno.ENOENT, "no such file")
        return ENTRY.pack(FILE, 0, SECONDS, SECONDS, 0, 0) + self._attributes(FILE)

    def _valid(self, node: int, arguments: bytes) -> bytes:
        return VALID.pack(SECONDS, 0, 0) + self._attributes(node)

    def _attributes(self, node: int) -> bytes:
        size, mode = (len(self._content), 0o100600) if node == FILE else (0, 0o040700)
        times = (0, 0, 0, 0, 0, 0)
        return ATTRIBUTES.pack(node, size, size // 512, *times, mode, 1, 0, 0, 0, BLOCK, 0)

    def _read(self, node: int, arguments: bytes) -> bytes:
        _, offset, size, *_ = TRANSFER.unpack_from(arguments)
        return bytes(self._content[offset : offset + size])

    def _write(self, node: int, arguments: bytes) -> bytes:
        _, offset, size, *_ = TRANSFER.unpack_from(arguments)
        data = arguments[TRANSFER.size : TRANSFER.size + size]
        if offset + size > len(self._content):
            raise OSError(errno.ENOSPC, "the file does not grow")
        self._content[offset : offset + size] = data
        self._events.append(Written(offset, data))
        return WRITTEN.pack(size, 0)

    def _fsync(self, node: int, arguments: bytes) -> bytes:
        self._events.append(Flushed())
        return b""
