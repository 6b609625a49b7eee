"""tidelog doctor: planted misconfigurations are named, each with what to do, and a good store gets no advice."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.server.ports import free_port
from tests.tools.conftest import Run
from tests.until import until

import tidelog
from tidelog.aof import segment
from tidelog.disk.real import RealDisk
from tidelog.figures.advice import Facts, findings
from tidelog.figures.model import QueueFigures
from tidelog.store import role
from tidelog.tools import exits

NOW = 1_800_000_000_000
WELL = QueueFigures(
    *(0, b"mails", b"workers", 3, 2, 1, 0, 0, NOW - 1000), failures=0, scheduled=0, workers=2
)
GOOD = Facts(
    *("always", None, None, 3600, 60.0, 1 << 20, None, 1, 0.5, None, None, 9121, ("10.0.0.1",)),
    *(True, True, 1 << 30, 8 << 30, 40 << 30, 20 << 30, 0, (), None, 0, (WELL,), NOW),
)
# Each plants one misconfiguration; the finding that names it.
PLANTED: dict[str, dict[str, Any]] = {
    "log-failed": {"failure": "input/output error"},
    "writes-refused": {"refusal": "no space left"},
    "damaged": {"damage": "byte 17"},
    "fsync": {"fsync": "everysec"},
    "disk": {"free": 3 << 30, "maxdisk": 2 << 30},
    "quota": {"disk_bytes": 7400 << 20},
    "quota-too-large": {"maxdisk": 22 << 30},
    "no-quota": {"maxdisk": 0},
    "readable": {"readable": 0o055},
    "old-format": {"older": ("00000000000000000001.aof",)},
    "checkpoint-failed": {"checkpoint_failure": "no space left"},
    "log-behind-checkpoint": {"behind_bytes": 3 << 30},
    "surpluses": {"surpluses": 2},
    "no-snapshots": {"snapshot_every": 0},
    "no-backup": {"snapshot_age_s": float("inf")},
    "follower-lag": {"follower_lag_s": 60.0},
    "link-down": {"link_up": False},
    "follow-each-other": {"link_up": False, "each_other": True},
    "stale-replicaof": {"stale_leader": "10.0.0.1:6380", "role": "leads"},
    "no-metrics": {"metrics_port": 0},
    "no-password": {"password": False},
    "no-tls": {"tls": False},
    "dead-jobs": {"queues": (replace(WELL, dead=3),)},
    "no-workers": {"queues": (replace(WELL, workers=0),)},
    "oldest-job": {"queues": (replace(WELL, oldest_ms=NOW - 3_600_000),)},
}


def names(done: Any) -> set[str]:
    return {each["finding"] for each in json.loads(done.out)["findings"]}


def test_good_facts_give_no_finding() -> None:
    assert findings(GOOD) == []
    assert findings(Facts()) == []  # nothing is known


@pytest.mark.parametrize("name", PLANTED)
def test_each_misconfiguration_is_named_alone(name: str) -> None:
    (one,) = findings(replace(GOOD, **PLANTED[name]))
    assert one.name == name
    assert one.text.endswith(".") and one.todo.endswith("."), one


@pytest.fixture
def good(tmp_path: Path) -> Path:
    root = tmp_path / "good"
    with tidelog.open(root) as db:
        mails = db.queue("mails")
        mails.put("hello")
        job = mails.get("w", block=0)
        assert job is not None and job.ack()
        mails.put("again")
        db.snapshot()
    os.chmod(root, 0o700)
    return root


@pytest.fixture
def roomy(monkeypatch: pytest.MonkeyPatch) -> None:
    """The disk of the tests may be full."""
    monkeypatch.setattr(RealDisk, "free", lambda disk, path: 1 << 30)
    monkeypatch.setattr(RealDisk, "capacity", lambda disk, path: 2 << 30)


@pytest.mark.usefixtures("roomy")
def test_a_good_store(run: Run, good: Path) -> None:
    done = run("doctor", good)
    assert (done.code, done.out, done.err) == (exits.OK, "nothing to advise\n", "")
    assert json.loads(run("doctor", good, "--json").out) == {"place": str(good), "findings": []}


@pytest.mark.usefixtures("roomy")
def test_a_good_server(run: Run, good: Path) -> None:
    with (
        tidelog.open(good, snapshot_every=3600, keep_snapshots=3, maxdisk=512 << 20) as db,
        tidelog.serve(db, port=0, metrics_port=free_port()) as serving,
    ):
        for place in (good, f"redis://127.0.0.1:{serving.port}"):
            done = run("doctor", place)
            assert (done.code, done.out) == (exits.OK, "nothing to advise\n")


def test_ten_misconfigurations_of_a_store(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Planted in the files and in the process that serves them."""
    root = tmp_path / "bad"
    monkeypatch.setattr(RealDisk, "free", lambda disk, path: 1)
    monkeypatch.setattr("tidelog.figures.advice.BEHIND_BYTES", 10)
    with tidelog.open(root, fsync="everysec") as db, tidelog.serve(db, port=0, bind="0.0.0.0"):
        mails = db.queue("mails")
        mails.put_many(["a", "b"])
        job = mails.get("w", block=0)
        assert job is not None and job.fail("no such address")
        db.queue("bills").put("x")
        (root / "quarantine" / "store.1").mkdir(parents=True)
        root.chmod(0o755)
        monkeypatch.setattr(segment, "VERSION", segment.VERSION + 1)
        done = run("doctor", root, "--json", "--oldest", 0)
    assert done.code == exits.ADVICE, done.err
    assert names(done) >= {
        *("fsync", "disk", "readable", "log-behind-checkpoint", "surpluses", "old-format"),
        *("no-snapshots", "no-backup", "no-metrics", "dead-jobs", "no-workers", "oldest-job"),
    }


@pytest.mark.usefixtures("roomy")
@pytest.mark.parametrize(
    ("maxdisk", "finding"),
    [(None, "no-quota"), (1 << 20, "quota"), (2 << 40, "quota-too-large"), (512 << 20, "")],
)
def test_the_quota_of_a_served_store(
    maxdisk: int | None, finding: str, run: Run, good: Path
) -> None:
    with (
        tidelog.open(good, fsync="no", maxdisk=maxdisk) as db,
        tidelog.serve(db, port=0) as serving,
    ):
        db.xadd("s", {"raw": b"x" * 1_000_000})
        found = [each for each in names(run("doctor", good, "--json")) if "quota" in each]
        assert found == [finding] * bool(finding)
        told = names(run("doctor", f"redis://127.0.0.1:{serving.port}", "--json"))
        assert ("quota" in told) == (finding == "quota")  # a URL tells nothing of the disk
        assert not told & {"no-quota", "quota-too-large"}


@pytest.mark.usefixtures("roomy")
def test_a_leader_in_the_file_that_the_store_does_not_follow(run: Run, good: Path) -> None:
    """Until the store has a role, the file gives it one."""
    (good / "tidelog.toml").write_text('replicaof = "10.0.0.1 6380"\n')
    assert run("doctor", good).code == exits.OK
    follower = role.Role(
        "follower", "ab" * 16, "10.0.0.1", 6380, 0, "followed by the option replicaof"
    )
    others = {
        "leads": role.Role(
            "leader", "ab" * 16, generation=1, reason="promoted by REPLICAOF NO ONE"
        ),
        "follows 10.0.0.2:6380": follower._replace(host="10.0.0.2"),
    }
    role.publish(RealDisk(), good, follower)
    assert run("doctor", good).code == exits.OK
    for said, other in others.items():
        role.publish(RealDisk(), good, other)
        (good / "tidelog.toml").write_text('replicaof = "no one"\n')
        assert run("doctor", good).code == exits.OK
        (good / "tidelog.toml").write_text('replicaof = "10.0.0.1  6380"\n')
        done = run("doctor", good)
        assert f"tidelog.toml says to follow 10.0.0.1:6380, and the store {said}." in done.out
    assert run("config", good, "unset", "replicaof").code == exits.OK
    assert run("doctor", good).code == exits.OK


def test_two_that_follow_each_other(run: Run, tmp_path: Path) -> None:
    ports = free_port(), free_port()
    with ExitStack() as stack:
        for at, name in enumerate("ab"):
            db = stack.enter_context(tidelog.open(tmp_path / name))
            db.set("k", "v")  # a follower without data answers LOADING
            options = {"port": ports[at], "replicaof": f"127.0.0.1 {ports[1 - at]}"}
            stack.enter_context(tidelog.serve(db, **options))
        urls = [f"redis://127.0.0.1:{port}" for port in ports]
        told = {"follow-each-other"}
        until(lambda: all(told <= names(run("doctor", url, "--json")) for url in urls))


@pytest.mark.usefixtures("roomy")
def test_why_a_link_is_down(run: Run, tmp_path: Path) -> None:
    leader = f"127.0.0.1 {free_port()}"
    with tidelog.open(tmp_path / "a") as db:
        db.set("k", "v")
        with tidelog.serve(db, port=0, replicaof=leader):
            until(lambda: "is down: 127.0.0.1:" in run("doctor", tmp_path / "a").out)


def test_a_late_job(run: Run, good: Path) -> None:
    assert "oldest-job" in names(run("doctor", good, "--json", "--oldest", 0))


def test_a_damaged_log_points_to_verify(run: Run, good: Path) -> None:
    (log, *_) = sorted((good / "aof").glob("*.aof"))
    data = bytearray(log.read_bytes())
    data[20] ^= 1
    log.write_bytes(data)
    done = run("doctor", good)
    assert done.code == exits.ADVICE and "tidelog verify" in done.out


def test_a_store_without_a_write(run: Run, tmp_path: Path, roomy: None) -> None:
    tidelog.open(tmp_path / "new").close()
    assert names(run("doctor", tmp_path / "new", "--json")) <= {"no-backup", "readable"}


def test_nothing_there(run: Run, tmp_path: Path) -> None:
    assert run("doctor", tmp_path / "none").code == exits.NOT_A_STORE
    assert run("doctor", "redis://127.0.0.1:1").code in (exits.SYSTEM, exits.REFUSED)


@pytest.fixture(autouse=True)
def _masked() -> Iterator[None]:
    before = os.umask(0o077)
    yield
    os.umask(before)
