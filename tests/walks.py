"""Walks of checkpoint files in processes that are forked, not started.

`tidelog.snapshot.walk` starts Python for each file that it reads: a tenth of a second of processor time, most of it for
imports. Tests walk hundreds of small files. So each process of the tests starts one that has imported the code, and
each walk is a fork of it. tests/snapshot/test_walk.py starts the processes as users do.
"""

from __future__ import annotations

import gc
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.gate import left

from tidelog.snapshot import walk
from tidelog.snapshot.child import start_child

REQUEST_BYTES = 1 << 16
STATUS_BYTES = 64


class ForkedWalk:
    """One walk, as much like a `subprocess.Popen` as `walk` needs."""

    def __init__(self, requests: socket.socket, folder: str) -> None:
        out, out_of_child = os.pipe()
        errors, errors_of_child = os.pipe()
        self._status, status_of_child = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        fds = (out_of_child, errors_of_child, status_of_child.detach())
        socket.send_fds(requests, [json.dumps([os.getcwd(), folder]).encode()], fds)
        for fd in fds:
            os.close(fd)
        self.stdout = os.fdopen(out, "rb")
        self.stderr = os.fdopen(errors, "rb")
        self.pid = int(self._status.recv(STATUS_BYTES))
        self.returncode: int | None = None

    def kill(self) -> None:
        if self.returncode is None:  # so nobody else has the number yet
            os.kill(self.pid, signal.SIGKILL)

    def wait(self) -> int:
        if self.returncode is None:
            self.returncode = int(self._status.recv(STATUS_BYTES))
            self._status.close()
        return self.returncode


class Server:
    """The process that is forked. It is started with the first walk."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        # Not that of the test with the first walk: the process serves all tests.
        self._mark = os.environ[left.MARK]
        self._requests: socket.socket | None = None
        self._process: subprocess.Popen[bytes] | None = None

    def start_child(self, words: Sequence[str], path: Path, *, buffered: bool = True) -> Any:
        if tuple(words[:-1]) != ("-m", "tidelog.snapshot.walk"):
            return start_child(words, path, buffered=buffered)
        with self._lock:
            if self._requests is None:
                self._requests = self._start()
        return ForkedWalk(self._requests, words[-1])

    def _start(self) -> socket.socket:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.walks", str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                start_new_session=True,
                cwd=Path(__file__).parents[1],
                env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "PYTHONOPTIMIZE": "",
                     left.MARK: self._mark},
            )  # fmt: skip
        return ours

    def close(self) -> None:
        if self._requests is not None and self._process is not None:
            self._requests.close()
            self._process.wait()


# --- in the process that is forked


def serve(requests: socket.socket) -> None:
    """Fork an attendant for each request, until the tests have closed their end."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for attendants
    gc.collect()
    gc.freeze()
    while True:
        request, fds, _, _ = socket.recv_fds(requests, REQUEST_BYTES, 3)
        if not request:
            return
        if not os.fork():
            requests.close()
            _attend(*json.loads(request), *fds)
            os._exit(0)
        for fd in fds:
            os.close(fd)


def _attend(cwd: str, folder: str, out: int, errors: int, status: int) -> None:
    """Fork the walk, and tell its number and how it ends."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    child = os.fork()
    if not child:
        os.dup2(out, 1)
        os.dup2(errors, 2)
        for fd in (out, errors, status):
            os.close(fd)
        os.chdir(cwd)
        os._exit(_walk(folder))
    os.close(out)
    os.close(errors)
    with socket.socket(fileno=status) as told:
        told.send(b"%d" % child)
        ended = os.waitid(os.P_PID, child, os.WEXITED | os.WNOWAIT)
        assert ended is not None
        code = ended.si_status
        told.send(b"%d" % (code if ended.si_code == os.CLD_EXITED else -code))
        told.recv(1)  # the number stays taken until the tests have read this
    os.waitpid(child, 0)


def _walk(folder: str) -> int:
    try:
        code = walk.main(Path(folder))
        sys.stdout.flush()
    except BaseException:
        traceback.print_exc()
        return 1
    return code


if __name__ == "__main__":
    serve(socket.socket(fileno=int(sys.argv[1])))
