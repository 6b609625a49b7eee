"""A file system of the kernel that loses its power: ext4 or xfs in a file, mounted through a loop device, shut down by
ioctl.

After the shutdown nothing is written any more: the page cache and the running transaction of the journal are lost. Then
it is mounted again, and the kernel replays the journal, as after a power cut.

The mounts are in a mount namespace of this process, so they end with it, however it ends. The kernel then frees the
loop device too.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import random
import shutil
import struct
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple

from tidelog.crash.explore import Finding, Report
from tidelog.crash.killed import Effort, Runs, kill
from tidelog.crash.oracle import Fault
from tidelog.crash.run import scene_of
from tidelog.crash.suffered import Scene
from tidelog.crash.trace import Trace
from tidelog.disk.real import RealDisk

MACHINE: Final = "machine"
XFS: Final = "xfs"


class Kind(NamedTuple):
    """A kind of file system.

    options  of its mkfs
    nbytes   size of an image; an xfs has 300 MB or more, and most are holes
    """

    name: str
    options: tuple[str, ...]
    nbytes: int


# The options make mkfs take a file for a device.
KINDS: Final = {MACHINE: Kind("ext4", ("-F",), 64 << 20), XFS: Kind("xfs", ("-f",), 320 << 20)}
CLONE_NEWNS: Final = 0x00020000
EXT4_IOC_SHUTDOWN: Final = 0x8004587D  # xfs has the same number
NO_LOG_FLUSH: Final = 2  # EXT4_GOING_FLAGS_NOLOGFLUSH
COMMANDS: Final = ("mount", "umount")
# Where a user's PATH does not have them.
PATH: Final = f"{os.environ.get('PATH', os.defpath)}:/usr/sbin:/sbin"
SECONDS: Final = 60.0  # a command may take so long


class CannotMount(Exception):
    """No file system can be mounted here. The text is the reason."""


class FileSystem:
    """The file system of a layer, in a file of `scratch`, mounted at `place`."""

    def __init__(self, scratch: Path, layer: str) -> None:
        self.layer = layer
        self.place = scratch / "mounted"
        self._image = scratch / "image"

    def make(self) -> None:
        """Make and mount it. Raises CannotMount."""
        kind = KINDS[self.layer]
        own_mounts(kind)
        RealDisk().mkdir(self.place)
        with open(self._image, "wb") as image:
            image.truncate(kind.nbytes)
        make_in(self._image, kind)
        self.mount()
        try:
            self.cut()
        except OSError as error:
            raise CannotMount(
                f"this kernel does not shut {kind.name} down: {error.strerror}"
            ) from error
        self.unmount()
        self.mount()

    def remove(self) -> None:
        """Unmount it, and remove its files."""
        if os.path.ismount(self.place):
            self.unmount()
        if self.place.is_dir():
            self.place.rmdir()
        self._image.unlink(missing_ok=True)

    def mount(self) -> None:
        call("mount", "-o", "loop", self._image, self.place)

    def unmount(self) -> None:
        call("umount", self.place)

    def cut(self) -> None:
        """Shut it down. From here on each operation of it fails."""
        fd = os.open(self.place, os.O_RDONLY | os.O_DIRECTORY)
        try:
            fcntl.ioctl(fd, EXT4_IOC_SHUTDOWN, struct.pack("=I", NO_LOG_FLUSH))
        finally:
            os.close(fd)


def make_in(image: Path, kind: Kind) -> None:
    """Make an empty file system in a file. Raises CannotMount."""
    call(f"mkfs.{kind.name}", "-q", *kind.options, image)


def own_mounts(kind: Kind) -> None:
    """Give this process a mount namespace of its own. Raises CannotMount, also if a command is missing."""
    if os.geteuid() != 0:
        raise CannotMount("only root may mount a file system")
    for name in (f"mkfs.{kind.name}", *COMMANDS):
        if shutil.which(name, path=PATH) is None:
            raise CannotMount(f"the command {name} is missing")
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(CLONE_NEWNS) != 0:
        reason = os.strerror(ctypes.get_errno())
        raise CannotMount(f"a mount namespace of its own is refused: {reason}")
    call("mount", "--make-rprivate", "/")


def call(*command: str | Path) -> None:
    """Run a command. Raises CannotMount with the first line of what it said."""
    env = {**os.environ, "PATH": PATH, "LC_ALL": "C"}
    try:
        subprocess.run(
            command,
            env=env,
            check=True,
            capture_output=True,
            timeout=SECONDS,
            start_new_session=True,  # Ctrl-C is for this process
        )
    except subprocess.CalledProcessError as error:
        said = error.stderr.decode(errors="replace").strip().splitlines() or [f"{error}"]
        raise CannotMount(f"{command[0]} failed: {said[0]}") from error
    except (OSError, subprocess.TimeoutExpired) as error:
        raise CannotMount(f"{command[0]} failed: {error}") from error


@contextmanager
def file_system(scratch: Path, layer: str = MACHINE) -> Iterator[FileSystem]:
    """A mounted file system; `scratch` is an existing empty directory. Raises CannotMount."""
    made = FileSystem(scratch, layer)
    try:
        made.make()
        yield made
    finally:
        made.remove()


class Cuts(Runs):
    """Runs whose file system loses its power when their process is killed."""

    power = True

    def __init__(self, scene: Scene, made: FileSystem) -> None:
        self._made = made
        super().__init__(scene, made.place)

    def begun(self) -> None:
        # Otherwise a power cut brings files of the run before back.
        RealDisk().sync_directory(self._made.place)

    def strike(self) -> None:
        self._made.cut()

    def struck(self) -> None:
        self._made.unmount()
        self._made.mount()


def cut_power(
    made: FileSystem,
    policy: str,
    seed: str,
    drawn: int,
    stopping: Callable[[], bool] = lambda: False,
) -> Report:
    """Cut the power of a workload `drawn` times. Ends with the first finding, or `stopping()`. Raises CannotMount."""
    rng = random.Random(f"{seed}/{made.layer}/{policy}")
    scene = scene_of(policy, seed, rng)
    return kill(
        scene,
        made.place,
        rng,
        Effort(drawn),
        stopping,
        runs_of=lambda scene, _: Cuts(scene, made),
        layer=made.layer,
    )


def try_again(scratch: Path, trace: Trace, finding: Finding) -> Fault | None:
    """The fault of one power cut again. Raises CannotMount."""
    assert finding.trouble is not None
    with file_system(scratch, finding.layer) as made:
        runs = Cuts(Scene.of(trace.about), made)
        try:
            return runs.kill(finding.trouble)[0]
        finally:
            runs.end()
