"""A served store with a console, and a client that speaks HTTP to it over a socket of its own."""

from __future__ import annotations

import json
from collections.abc import Mapping
from http.client import HTTPConnection
from typing import Any, NamedTuple
from urllib.parse import quote, urlencode

from tests.server.conftest import Running, Start
from tests.server.ports import free_port

import tidelog

PASSWORD = "the password of anna"


class Answer(NamedTuple):
    """A response."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def told(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.body)
        return found


class Site:
    """A server with a console. `cookie` and `csrf` are those of the login, if there is one."""

    def __init__(self, start: Start, **options: Any) -> None:
        self.port = free_port()
        self.running: Running = start(metrics_port=self.port, **options)
        self.cookie = self.csrf = ""

    @property
    def db(self) -> tidelog.Store:
        return self.running.db

    def send(self, method: str, path: str, body: bytes | None = None, **headers: str) -> Answer:
        """One request. An underscore in the name of a header stands for a dash."""
        given = {name.replace("_", "-"): text for name, text in headers.items()}
        if self.cookie:
            given.setdefault("Cookie", self.cookie)
        link = HTTPConnection("127.0.0.1", self.port, timeout=60)
        try:
            link.request(method, path, body, given)
            answer = link.getresponse()
            return Answer(answer.status, dict(answer.getheaders()), answer.read())
        finally:
            link.close()

    def get(self, name: str, **query: str) -> dict[str, Any]:
        """The answer of the API, which must be 200."""
        answer = self.look(name, **query)
        assert answer.status == 200, answer
        return answer.told

    def look(self, name: str, **query: str) -> Answer:
        return self.send("GET", f"/console/api/{name}?{urlencode(query)}")

    def post(self, name: str, told: object, **headers: str) -> Answer:
        """A request of the page: JSON, and the CSRF token of the login."""
        given = {"Content_Type": "application/json", "X_CSRF_Token": self.csrf, **headers}
        return self.send("POST", f"/console/api/{name}", json.dumps(told).encode(), **given)

    def sign_in(self, user: str = "anna", password: str = PASSWORD) -> Answer:
        answer = self.post("login", {"user": user, "password": password})
        if answer.status == 200:
            self.cookie = answer.headers["Set-Cookie"].partition(";")[0]
            self.csrf = answer.told["csrf"]
        return answer

    def user(self, *rules: str, name: str = "anna") -> None:
        """Create or change a user."""
        with self.running.client() as client:
            assert client.execute_command("ACL", "SETUSER", name, *rules)

    def anna(self) -> None:
        """A user who may do everything, signed in."""
        self.user("on", f">{PASSWORD}", "~*", "&*", "+@all")
        assert self.sign_in().status == 200


def failing(db: tidelog.Store, jobs: int, name: str = "mails") -> tidelog.Queue:
    """A queue with dead jobs, which failed with a traceback."""
    queue = db.queue(name)
    queue.put_many([{"to": number} for number in range(jobs)])
    for number, job in enumerate(queue.consume("worker-1", block=0)):
        try:
            raise LookupError(f"no mailbox {number}")
        except LookupError as error:
            job.fail(error)
    return queue


def ref(name: bytes | str) -> str:
    """A name as the API takes it."""
    return quote(name, safe="")
