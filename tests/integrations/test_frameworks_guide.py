"""The guide "Frameworks, tracing and metrics": its programs run as written, with the real frameworks."""

from __future__ import annotations

import asyncio
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.until import PATIENCE_S

import tidelog
from tidelog.disk.process import environment

PAGE = Path(__file__).parents[2] / "docs/guides/frameworks.md"


def programs(title: str) -> list[str]:
    """The Python blocks of a section."""
    section = PAGE.read_text().split(f"\n## {title}\n", 1)[1].split("\n## ", 1)[0]
    found: list[str] = re.findall(r"```python\n(.*?)```", section, re.S)
    return found


@pytest.fixture
def served(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tidelog.Store]:
    """The store `app-data` of the working directory, served by this process."""
    monkeypatch.chdir(tmp_path)
    with tidelog.open("app-data", fsync="no") as db, tidelog.serve(db, port=0):
        yield db


async def asked(app: Any, method: str, path: str, query: str = "", status: int = 200) -> Any:
    """The reply of an ASGI application, within its lifespan."""
    said: asyncio.Queue[Any] = asyncio.Queue()
    heard: asyncio.Queue[Any] = asyncio.Queue()
    state: dict[str, Any] = {}
    life = asyncio.create_task(
        app({"type": "lifespan", "asgi": {"version": "3.0"}, "state": state}, heard.get, said.put)
    )
    await heard.put({"type": "lifespan.startup"})
    started = await asyncio.wait_for(said.get(), PATIENCE_S)
    assert started["type"] == "lifespan.startup.complete", started
    sent: list[Any] = []

    async def receive() -> Any:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: Any) -> None:
        sent.append(message)

    scope: dict[str, Any] = {
        "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": method,
        "scheme": "http", "path": path, "raw_path": path.encode(), "query_string": query.encode(),
        "root_path": "", "headers": [], "client": None, "server": ("testserver", 80), "state": state,
    }  # fmt: skip
    await app(scope, receive, send)
    await heard.put({"type": "lifespan.shutdown"})
    await asyncio.wait_for(life, PATIENCE_S)
    assert sent[0]["status"] == status, sent
    return json.loads(b"".join(message.get("body", b"") for message in sent[1:]))


def test_fastapi(served: tidelog.Store) -> None:
    (program,) = programs("FastAPI")
    names: dict[str, Any] = {"__name__": "web"}
    exec(compile(program, "web.py", "exec", dont_inherit=True), names)
    reply = asyncio.run(asked(names["app"], "POST", "/mails", "to=ann%40example.org"))
    (job,) = served.queue("mails").peek()
    assert (job.id, job.value) == (reply["id"], {"to": "ann@example.org"})
    shown = asyncio.run(asked(names["app"], "GET", f"/mails/{job.id}"))
    assert (shown["state"], shown["value"]) == ("waiting", {"to": "ann@example.org"})
    assert shown["time_limit"] == 30
    for other in ("1-1", "x"):
        asyncio.run(asked(names["app"], "GET", f"/mails/{other}", status=404))
    for cancelled in (True, False):
        reply = asyncio.run(asked(names["app"], "DELETE", f"/mails/{job.id}"))
        assert reply == {"cancelled": cancelled}
    asyncio.run(asked(names["app"], "DELETE", "/mails/x", status=404))
    assert len(served.queue("mails")) == 0


DJANGO = """
import django
from django.conf import settings

settings.configure(
    INSTALLED_APPS=["django.contrib.auth", "django.contrib.contenttypes"],
    DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": "db.sqlite3"}},
    DEFAULT_AUTO_FIELD="django.db.models.AutoField", ALLOWED_HOSTS=["*"],
)
django.setup()
from django.core.management import call_command
from django.db import transaction
from django.test import RequestFactory

call_command("migrate", verbosity=0)
import views

import json
post = RequestFactory().post("/", {"name": "ann", "email": "ann@example.org"})
mails = views.tasks.queue("mails")
try:
    with transaction.atomic():
        views.register(post)
        assert len(mails) == 0
        raise KeyError("rolled back")
except KeyError:
    pass
assert len(mails) == 0
views.register(post)
assert len(mails) == 1
(job,) = mails.find(state="waiting").jobs
assert job.time_limit == 60
views.tasks.run(workers=1, block=0)
assert len(mails) == 0
put = views.welcome.put(7)
assert json.loads(views.cancel(post, put).content) == {"cancelled": True}
assert len(mails) == 0
views.tasks.close()
"""


@pytest.mark.slow
def test_django(served: tidelog.Store, tmp_path: Path) -> None:
    work, views = programs("Django")
    (tmp_path / "views.py").write_text(views)
    (tmp_path / "work.py").write_text(work)
    done = subprocess.run(
        [sys.executable, "-c", DJANGO],
        cwd=tmp_path,
        env={**environment(), "PYTHONSAFEPATH": ""},
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
    )
    assert (done.returncode, done.stdout) == (0, "welcome ann@example.org\n"), done.stderr


def test_the_brokers_of_the_guide_are_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for title in ("taskiq", "Celery"):
        program = programs(title)[0]
        exec(compile(program, f"{title}.py", "exec", dont_inherit=True), {"__name__": title})
    assert not (tmp_path / "app-data").exists()


def test_tracing_and_metrics(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for title in ("OpenTelemetry", "Prometheus"):
        (tmp_path / title).mkdir()
        monkeypatch.chdir(tmp_path / title)
        (program,) = programs(title)
        exec(compile(program, f"{title}.py", "exec", dont_inherit=True), {"__name__": title})
    assert capsys.readouterr().out == "sent to ann\n1\n"
