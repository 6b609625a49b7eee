"""The guide "In production", typed line by line: the services as their units say, a backup, an upgrade, a follower.

systemctl needs systemd as process 1, which containers do not have. So `Services` starts and ends what the units say.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Final

import pytest
from tests.client.owners import is_running, owner_of
from tests.client.test_handover import Client
from tests.server.access.test_tls import made
from tests.server.monitoring.test_contrib import ALERTS
from tests.server.ports import free_port
from tests.tools.conftest import Run, run
from tests.until import until

import tidelog
from tidelog.disk.process import environment
from tidelog.disk.real import RealDisk

__all__ = ["run"]  # a fixture

ROOT: Final = Path(__file__).parents[2]
PAGE: Final = (ROOT / "docs/guides/production.md").read_text()
UNITS: Final = sorted((ROOT / "contrib/systemd").glob("*.service"))
CONTAINER: Final = (ROOT / "contrib/Containerfile").read_text()
SCRIPT: Final = Path(sys.executable).with_name("tidelog")
FOLDERS: Final = ("/etc/systemd/system", "/etc/tidelog", "/var/lib/tidelog", "/backup", "/opt/mail")
WORK: Final = "def send(job):\n    print('sent', job.value, flush=True)\n"


def blocks(section: str) -> list[list[str]]:
    """The lines of each block below a heading."""
    (text,) = re.findall(rf"^## {section}\n(.*?)(?=^## |\Z)", PAGE, re.M | re.S)
    return [block.splitlines() for block in re.findall(r"```sh\n(.*?)```", text, re.S)]


def lines(section: str) -> list[str]:
    """The lines of all of them."""
    return [line for block in blocks(section) for line in block]


class Machine:
    """A place for each path of the page, and for each of its ports. Types lines."""

    def __init__(self, folder: Path, run: Run) -> None:
        self.run = run
        self.places = {name: str(folder / name[1:].replace("/", "-")) for name in FOLDERS}
        for place in self.places.values():
            Path(place).mkdir(mode=0o700, parents=True)
        (Path(self.places["/opt/mail"]) / "work.py").write_text(WORK)
        self.places |= {port: str(free_port()) for port in ("9121", "6380")}
        self.places |= dict.fromkeys(("10.0.0.1", "10.0.0.2"), "127.0.0.1")
        self.places["/opt/tidelog/bin"] = str(SCRIPT.parent)
        self.services = Services(self)

    def there(self, text: str) -> str:
        """A text of the page, with the places of this test."""
        for name, place in self.places.items():
            text = text.replace(name, place)
        return text

    def type(self, line: str) -> str:
        """Type a line. Returns what it prints."""
        words = shlex.split(self.there(line))
        match words:
            case ["tidelog", *rest]:
                done = self.run(*rest)
                assert done.code == 0, (line, done)
                return done.out
            case ["systemctl", "daemon-reload"]:
                pass
            case ["systemctl", "enable", "--now", *names] | ["systemctl", "start", *names]:
                for name in names:
                    self.services.start(name)
            case ["systemctl", "stop", *names] | ["systemctl", "disable", "--now", *names]:
                for name in names:
                    self.services.stop(name)
            case ["systemctl", "restart", *names]:
                for name in names:
                    self.services.stop(name)
                    self.services.start(name)
            case _:
                return subprocess.run(
                    words, cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True
                ).stdout
        return ""


class Services:
    """The services of a machine, started and ended by their installed units."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self.running: dict[str, subprocess.Popen[bytes]] = {}

    def start(self, name: str) -> None:
        """A timer starts its service at once, as one that has missed its time."""
        folder = Path(self._machine.there("/etc/systemd/system"))
        if name.endswith(".timer"):
            assert (folder / name).exists()
            name = name.removesuffix(".timer")
        unit = dict(re.findall(r"^(\w+)=(.*)$", (folder / f"{name}.service").read_text(), re.M))
        line = unit["ExecStart"].replace("$$", "$").replace("%%", "%")
        process = subprocess.Popen(
            shlex.split(self._machine.there(line)),
            cwd=self._machine.there(unit.get("WorkingDirectory", "/opt/mail")),
            env=environment(),
            umask=int(unit["UMask"], 8),
        )
        if unit["Type"] == "oneshot":
            assert process.wait(120) == 0
        else:
            self.running[name] = process

    def stop(self, name: str) -> None:
        """With SIGTERM to the first process, as KillMode=mixed does. It must end in order."""
        process = self.running.pop(name)
        process.terminate()
        assert process.wait(60) == 0

    def lose_power(self) -> None:
        while self.running:
            _, process = self.running.popitem()
            process.kill()
            process.wait()

    def kill(self) -> None:
        for name in sorted(self.running, reverse=True):  # the workers before the server they ask
            self.running[name].terminate()
            self.running[name].wait(90)


@pytest.fixture
def begin(run: Run, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[Path], Machine]]:
    monkeypatch.setattr(RealDisk, "capacity", lambda disk, path: 1 << 40)
    monkeypatch.setattr(RealDisk, "free", lambda disk, path: 1 << 40)
    with ExitStack() as stack:

        def one(folder: Path) -> Machine:
            machine = Machine(folder, run)
            stack.callback(machine.services.kill)
            return machine

        yield one


def test_the_guide_from_top_to_bottom(
    begin: Callable[[Path], Machine], run: Run, tmp_path_factory: pytest.TempPathFactory
) -> None:
    short = tmp_path_factory.mktemp("g")  # redis-cli takes a socket whose path has 107 bytes
    machine, other = begin(short / "one"), begin(short / "other")
    root = Path(machine.there("/var/lib/tidelog/mail"))
    *setting, look = lines("The services")
    for line in setting:
        machine.type(line)
    assert set(machine.services.running) == {"tidelog", "tidelog-worker"}
    with tidelog.queue(root, "mails", shared=True) as mails:
        mails.put("ann")
        until(lambda: len(mails) == 0, "the worker does nothing")
        machine.type(lines("Backup")[0])
        assert "nothing to advise" in machine.type(look)
        machine.services.stop("tidelog-worker")
        mails.put_many(["ben", "eve"])
        for line in lines("Backup"):
            said = machine.type(line)
        assert re.search(r"^waiting +2\b", said, re.M), said
        (copy,) = Path(machine.there("/backup")).glob("mail-*")
        assert run("snapshot", "verify", copy).code == 0
        machine.services.start("tidelog-worker")
        until(lambda: len(mails) == 0, "the worker does nothing")
    upgrade(machine, root)
    follow(machine, other)
    fail_over(machine, other)


def upgrade(machine: Machine, root: Path) -> None:
    """Clients go on without an error."""
    client = Client(root, "during", queue="mails", codec="json")
    until(lambda: client.put or client.error, "it does not put")
    before = owner_of(root)
    *doing, look = lines("Upgrade")
    for line in doing:
        machine.type(line)
    seen = len(client.put)
    until(lambda: client.error or len(client.put) > seen, "it does not go on")
    client.end()
    assert not is_running(before) and owner_of(root) == machine.services.running["tidelog"].pid
    assert "nothing to advise" in machine.type(look)


def follow(machine: Machine, other: Machine) -> None:
    root = "/var/lib/tidelog/mail"
    folder = Path(machine.there("/etc/tidelog"))
    files = made(folder, "server")
    shutil.copy(files.certificate, folder / "ca.pem")
    (folder / "password").write_text("a long word\n")
    (folder / "password").chmod(0o600)
    shutil.copytree(folder, other.there("/etc/tidelog"), dirs_exist_ok=True)
    other.places = {"10.0.0.1 6380": machine.there("10.0.0.1 6380"), **other.places}
    machine.places = {"10.0.0.2 6380": other.there("10.0.0.2 6380"), **machine.places}
    first, second, (look,) = blocks("A follower")
    for line in first:
        machine.type(line)
    for line in second:
        other.type(line)

    def is_up() -> bool:
        told = other.run("replica", "status", other.there(root)).out
        return re.search("^link +up, 0 records", told, re.M) is not None

    until(is_up, "it does not follow")  # before, it answers others LOADING
    with (
        tidelog.connect(machine.there(root), timeout=120) as leader,
        tidelog.connect(other.there(root), timeout=120, start=False) as follower,
    ):
        leader.set("name", "ann")
        until(lambda: follower.get("name") == b"ann", "it does not follow")
        assert follower.info()["master_link_status"] == "up"
    assert f"\nfurthest     127.0.0.1:{other.places['6380']}\n" in machine.type(look)
    assert "\nlink         up" in other.type(look)


def fail_over(machine: Machine, other: Machine) -> None:
    """The leader's machine loses its power, comes back, follows, and leads again."""
    root = "/var/lib/tidelog/mail"
    take, back, change = blocks("The leader is gone")
    machine.services.lose_power()
    for line in take:
        said = other.type(line)
        if line.startswith("tidelog replica promote"):
            assert " leads now: " in said and "stale-replicaof" in findings(other)
    assert "stale-replicaof" not in findings(other)
    works(other)
    for name in ("tidelog", "tidelog-worker"):
        machine.services.start(name)
    works(machine)  # it leads, too
    for line in back:
        machine.type(line)
    with tidelog.connect(machine.there(root), start=False) as db:
        until(lambda: db.info()["master_link_status"] == "up", "it does not follow")
    for line in change:
        other.type(line)
    until(lambda: "\nrole         leader " in machine.type(take[0]), "it does not lead")
    machine.type(take[-1])
    works(machine)
    with tidelog.connect(other.there(root), start=False) as db:
        until(lambda: db.info()["master_link_status"] == "up", "it does not follow")
    assert not findings(machine) & {"stale-replicaof", "follow-each-other", "link-down"}


def findings(machine: Machine) -> set[str]:
    done = machine.run("doctor", machine.there("/var/lib/tidelog/mail"), "--json")
    return {each["finding"] for each in json.loads(done.out)["findings"]}


def works(machine: Machine) -> None:
    """Its workers do a job that an application puts there."""
    with tidelog.queue(machine.there("/var/lib/tidelog/mail"), "mails", shared=True) as mails:
        mails.put("zoe")
        until(lambda: len(mails) == 0, "the worker does nothing")


def test_the_units_are_ones_that_systemd_takes(tmp_path: Path) -> None:
    timers = sorted(UNITS[0].parent.glob("*.timer"))
    for unit in (*UNITS, *timers):
        text = unit.read_text().replace("/opt/tidelog/bin/tidelog", str(SCRIPT))
        (tmp_path / unit.name).write_text(text.replace("/opt/mail", str(tmp_path)))
    services = [str(tmp_path / unit.name) for unit in UNITS]
    names = [*services, *(str(tmp_path / unit.name) for unit in timers)]
    for words in (
        ["verify", "--man=no", *names],
        ["security", "--offline=yes", "--threshold=20", *services],
    ):
        done = subprocess.run(
            ["systemd-analyze", *words], capture_output=True, text=True, timeout=60
        )
        assert (done.returncode, done.stderr) == (0, ""), done


def allowed(group: str) -> set[str]:
    """The system calls of a group, and of those that it names."""
    listed = subprocess.run(
        ["systemd-analyze", "syscall-filter", group], capture_output=True, text=True, check=True
    ).stdout
    names = [line.strip() for line in listed.splitlines()[1:] if not line.strip().startswith("#")]
    found = {name for name in names if not name.startswith("@")}
    return found.union(*(allowed(name) for name in names if name.startswith("@")))


@pytest.mark.slow
def test_server_and_worker_make_no_call_that_the_units_forbid(tmp_path: Path) -> None:
    root, notes = tmp_path / "mail", tmp_path / "calls"
    (tmp_path / "work.py").write_text(WORK)
    trace = ["strace", "-f", "-qq", "-o"]
    ports = ["--port", f"{free_port()}", "--metrics-port", f"{free_port()}"]
    with subprocess.Popen(
        [*trace, f"{notes}-serve", SCRIPT, "serve", root, *ports], env=environment()
    ) as server:
        try:
            with tidelog.queue(root, "mails", shared=True) as mails:
                mails.put_many(range(100))
                subprocess.run(
                    [*trace, f"{notes}-work", SCRIPT, "worker", root, "mails", "work:send", "--until-idle", "0"],
                    cwd=tmp_path, env=environment(), check=True, stdout=subprocess.DEVNULL, timeout=120,
                )  # fmt: skip
            with tidelog.connect(root) as db:
                db.snapshot()
        finally:
            os.kill(owner_of(root), signal.SIGTERM)
    assert server.returncode == 0
    for unit, name in (("tidelog-worker", "work"), ("tidelog", "serve")):
        text = (UNITS[0].parent / f"{unit}.service").read_text()
        (group,) = re.findall(r"^SystemCallFilter=(.*)$", text, re.M)
        calls = set(re.findall(r"^\d+ +(\w+)\(", Path(f"{notes}-{name}").read_text(), re.M))
        assert "openat" in calls and calls - allowed(group) == set(), name


def test_the_container_file(tmp_path: Path) -> None:
    """The page builds and starts it as it says, and its command serves. No engine builds it here."""
    wheel, build, start = (shlex.split(line) for line in lines("In a container"))
    assert f"#   {shlex.join(wheel)} && {shlex.join(build)}" in CONTAINER
    instructions = re.findall(r"^([A-Z]+) (.*)$", CONTAINER, re.M)
    said = dict(instructions)
    assert f"mail:{said['VOLUME']}" in start and start[-1] == "tidelog"
    command = said["CMD"].strip('[]"').replace('", "', " ").replace("/data", str(tmp_path / "data"))
    with subprocess.Popen(
        [SCRIPT, *command.split()[1:], "--port", f"{free_port()}"], env=environment()
    ) as process:
        try:
            with tidelog.connect(tmp_path / "data", timeout=120, start=False) as db:
                assert db.ping()
        finally:
            process.terminate()
    assert process.returncode == 0


def test_the_page_has_each_alert() -> None:
    table = re.findall(r"^\| `(Tidelog\w+)` \|", PAGE, re.M)
    assert table == [rule["alert"] for rule in ALERTS]
    pages = [rule["labels"]["severity"] for rule in ALERTS]
    assert pages == ["page"] * 9 + ["ticket"] * (len(ALERTS) - 9) and "first nine" in PAGE
