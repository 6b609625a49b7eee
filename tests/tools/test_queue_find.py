"""tidelog queue find: of a directory and through a server, by each fact."""

from __future__ import annotations

import json
import time
from typing import Any

from tests.tools.conftest import Run
from tests.tools.test_queue_status import Opened, opened

from tidelog.tools import exits

__all__ = ["opened"]


def found(run: Run, place: Any, *words: object) -> list[dict[str, Any]]:
    done = run("queue", "find", place, "mails", "--json", *words)
    assert (done.code, done.err) == (0, "")
    return [json.loads(line) for line in done.out.splitlines()]


def test_by_each_fact(run: Run, opened: Opened) -> None:
    db, place = opened
    mails = db.queue("mails", retry_after=3600)
    failed, plain = mails.put({"to": "ann"}, key="ann", headers={"trace": "7"}), mails.put("b")
    later = mails.put("c", delay=3600, key="ann")
    mails.get("anna", block=0).nack("no answer")
    assert [job["id"] for job in found(run, place)] == [failed, plain, later]
    (job,) = found(run, place, "--error", "answer")
    assert (job["id"], job["state"], job["failure"]["error"]) == (failed, "paused", "no answer")
    assert (job["key"], job["headers"], job["value"]) == ("ann", {"trace": "7"}, {"to": "ann"})
    assert [job["id"] for job in found(run, place, "--job-key", "ann", "--count", 1)] == [failed]
    assert [job["id"] for job in found(run, place, "--state", "delayed")] == [later]
    assert [job["id"] for job in found(run, place, "--header", "trace=7")] == [failed]
    assert [job["id"] for job in found(run, place, "--text", '"TO"')] == [failed]
    assert len(found(run, place, "--since", "1h")) == 3
    assert found(run, place, "--since", int(time.time()) + 60) == []
    mails.get("anna", block=0).fail("bad")
    assert found(run, place, "--state", "dead")[0]["reason"] == "bad"
    text = run("queue", "find", place, "mails", "--codec", "bytes").out
    assert text.splitlines()[0].split() == ["ID", "STATE", "PUT", "KEY", "VALUE"]
    assert [line.split()[1] for line in text.splitlines()[1:]] == ["paused", "delayed", "dead"]


def test_it_looks_until_it_has_found_enough(run: Run, opened: Opened) -> None:
    db, place = opened
    mails = db.queue("mails", codec="bytes")
    mails.put_many([b"the-key"] * 25_000)  # more than one call of `Queue.find` looks at
    last = mails.put(b"v", key="the-key")
    assert [job["id"] for job in found(run, place, "--job-key", "the-key")] == [last]


def test_another_programs_entry_and_what_cannot_be_asked(run: Run, opened: Opened) -> None:
    db, place = opened
    db.queue("mails").put(1)
    db.xadd("mails", {"field": "text"})
    _, job = found(run, place)
    assert job["state"] == "waiting" and "no field" in job["undecodable"]
    for words in (("--header", "x"), ("--state", "done"), ("--since", "soon"), ("--job-key", "")):
        done = run("queue", "find", place, "mails", *words)
        assert (done.code, done.out) == (exits.USAGE, ""), words
    assert run("queue", "find", place, "nails").code == exits.NOT_A_STORE
