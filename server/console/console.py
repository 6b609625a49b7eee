"""Console: answers the requests under /console. An entry (entry.py) decides who may look and change; the commands that
it asks decide the rest.

    GET  /console/                        the page, with its style and its modules beside it
    GET  /console/api/session             who is here, and what the page may do
    GET  /console/api/overview            INFO
    GET  /console/api/queues, streams, schedules, workers           ?db=
    GET  /console/api/queue               ?db= &key= &group= &before=
    GET  /console/api/stream              ?db= &key=
    GET  /console/api/job                 ?db= &key= &group= &id=
    GET  /console/api/life                ?key= &id=                what the log tells of a job
    GET  /console/api/search              ?db= &key= &group= &text= &part= &after=
    POST /console/api/login, logout       {"user", "password"} or {"token"}
    POST /console/api/put, cancel, move, redrive, purge-dead, purge, pause, resume

A change needs a visitor who is known, and that visitor's CSRF token in a header. A request that a page of another site
made a browser send is refused. docs/decisions/console.md has the reasons.
"""

from __future__ import annotations

import json
import logging
import pkgutil
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, Final
from urllib.parse import parse_qsl, urlsplit

from tidelog.engine import ids
from tidelog.engine.errors import CommandError
from tidelog.server.console import changes, jobs, looks, shown
from tidelog.server.console.entry import Entry, Link, NoAnswer, Refusal, Visitor, same
from tidelog.server.http import Request, Response

ROOT: Final = "/console"
IDS_MAX: Final = 1000  # that one request names
CSRF: Final = "X-CSRF-Token"
_SCRIPT: Final = "text/javascript; charset=utf-8"
_FILES: Final = {
    "": ("console.html", "text/html; charset=utf-8"),
    "console.css": ("console.css", "text/css; charset=utf-8"),
    **{name: (name, _SCRIPT) for name in ("console.js", "elements.js", "views.js", "job.js")},
}
# The page loads nothing but its own files, and nothing may frame it.
_POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_HEADERS: Final = (
    ("Content-Security-Policy", _POLICY),
    ("X-Content-Type-Options", "nosniff"),
    ("X-Frame-Options", "DENY"),
    ("Referrer-Policy", "no-referrer"),
    ("Cross-Origin-Resource-Policy", "same-origin"),
    ("Cross-Origin-Opener-Policy", "same-origin"),
    ("Cache-Control", "no-store"),
)

_logger = logging.getLogger("tidelog.server")


class Console:
    """The console of one entry. Its methods run in threads of the HTTP server."""

    def __init__(self, entry: Entry) -> None:
        self.entry = entry

    def answer(self, request: Request) -> Response:
        """The response to a request whose path begins with ROOT."""
        found = self._answer(request)
        return found._replace(headers=(*_HEADERS, *found.headers))

    def _answer(self, request: Request) -> Response:
        path = urlsplit(request.target).path.removeprefix(ROOT)
        try:
            if self.entry.off:
                raise Refusal(404, self.entry.off)
            if path == "":
                return Response(308, "text/plain", b"", (("Location", "console/"),))
            if path.startswith("/api/"):
                return self._api(request, path.removeprefix("/api/"))
            if path[1:] in _FILES and request.method in ("GET", "HEAD"):
                name, content_type = _FILES[path[1:]]
                return Response(200, content_type, _file(name))
            raise Refusal(404, "there is no such page")
        except Refusal as refusal:
            told = {"error": str(refusal), "login": refusal.login}
            return _json(told, refusal.status)

    # --- the API

    def _api(self, request: Request, name: str) -> Response:
        _check_origin(request)
        token = _cookie(request)
        visitor = self.entry.find(token) if token else None
        if request.method == "POST":
            return self._post(request, name, token, visitor)
        if request.method not in ("GET", "HEAD"):
            raise Refusal(405, f"{request.method} is not allowed here")
        if name == "session":
            return _json(self._session(request, visitor))
        query = _Query(dict(parse_qsl(urlsplit(request.target).query, True)))
        if name == "life" and self.entry.tells:
            if visitor is None:
                raise Refusal(401, self.entry.refusal(request) or "", login=True)
            return _json({"events": self.entry.life(query.key, ids.parse(query.job))})
        if name not in _LOOKS:
            raise Refusal(404, "there is no such page")

        def work(link: Link) -> dict[str, Any]:
            return {**_LOOKS[name](link, query), "now_ms": looks.now_ms(link)}

        return _json(self._ask(request, visitor, work))

    def _session(self, request: Request, visitor: Visitor | None) -> dict[str, Any]:
        """Answer what the page asks for first."""
        entry = self.entry
        return {
            "user": None if visitor is None else visitor.name,
            "csrf": None if visitor is None else visitor.csrf,
            "may_read": visitor is not None or entry.refusal(request) is None,
            "read_only": entry.read_only,
            "may_write": visitor is not None and not entry.read_only,
            "signs_in": entry.signs_in,
            "tells": entry.tells,
        }

    def _post(self, request: Request, name: str, token: str, visitor: Visitor | None) -> Response:
        given = _body(request)
        if name == "login":
            cookie, visitor = self.entry.enter(given, request.peer[0])
            session = self._session(request, visitor)
            return _json(session, headers=(_set_cookie(request, cookie, None),))
        if visitor is None:
            raise Refusal(401, "sign in first", login=True)
        if not same(request.header(CSRF), visitor.csrf):
            raise Refusal(403, f"the header {CSRF} is missing or wrong; load the page again")
        if name == "logout":
            self.entry.leave(token)
            return _json({}, headers=(_set_cookie(request, "", 0),))
        if name not in _CHANGES:
            raise Refusal(404, "there is no such action")
        if self.entry.read_only:
            raise Refusal(403, self.entry.read_only)
        query = _Query(given)

        def work(link: Link) -> dict[str, Any]:
            link.ask(b"SELECT", b"%d" % query.db)
            return _CHANGES[name](link, query)

        done = self._ask(request, visitor, work, changes=True)
        _logger.info(
            "console: user %s at %s: %s of %s: %d jobs",
            *(ascii(visitor.name), request.peer[0], name),
            *(ascii(shown.text(query.key)), done["done"]),
        )
        return _json(done)

    def _ask(
        self,
        request: Request,
        visitor: Visitor | None,
        work: Callable[[Link], dict[str, Any]],
        *,
        changes: bool = False,
    ) -> dict[str, Any]:
        """Do the work over a link of the visitor who asks. Raises Refusal."""
        if visitor is None:
            why = self.entry.refusal(request)
            if why is not None:
                raise Refusal(401, why, login=True)
        try:
            with self.entry.link(visitor, request, changes=changes) as link:
                return work(link)
        except CommandError as error:
            denied = error.line.startswith(b"NOPERM")
            raise Refusal(403 if denied else 409, str(error), login=denied) from None
        except looks.NotThere as error:
            raise Refusal(404, str(error)) from None
        except NoAnswer as error:
            raise Refusal(503, str(error)) from None


# --- requests


class _Query:
    """The parameters of a request. Its members raise Refusal if one is missing or wrong."""

    def __init__(self, given: Mapping[str, Any]) -> None:
        self._given = given

    def _text(self, name: str, otherwise: str | None = None) -> str:
        found = self._given.get(name, otherwise)
        if not isinstance(found, str):
            raise Refusal(400, f"{name} is missing, or no text")
        return found

    @property
    def db(self) -> int:
        found = str(self._given.get("db", 0))
        if not (found.isascii() and found.isdigit() and len(found) < 6):
            raise Refusal(400, "db must be the number of a database")
        return int(found)

    @property
    def key(self) -> bytes:
        # a space stands for itself: `ref` writes %20
        return shown.unref(self._text("key"))

    @property
    def group(self) -> bytes:
        return shown.unref(self._text("group"))

    def id(self, name: str) -> bytes:
        """An ID; empty if it is not given."""
        return _id(self._text(name, ""))

    @property
    def job(self) -> bytes:
        """The ID of a job."""
        return _id(self._text("id") or "?")

    def words(self, name: str) -> str:
        """A text; empty if it is not given."""
        return self._text(name, "")

    def number(self, name: str) -> int:
        """A number; 0 if it is not given."""
        found = self._given.get(name, 0)
        if type(found) is not int or not 0 <= found < 1 << 53:
            raise Refusal(400, f"{name} must be a whole number")
        return found

    @property
    def ids(self) -> list[bytes] | None:
        """None if the request asks for all."""
        found = self._given.get("ids")
        if found is None and self._given.get("all") is True:
            return None
        if not isinstance(found, list) or not 0 < len(found) <= IDS_MAX:
            raise Refusal(400, f"ids must be a list of 1 to {IDS_MAX:,} IDs, or all must be true")
        return [_id(each if isinstance(each, str) and each else "?") for each in found]


def _id(given: str) -> bytes:
    word = given.encode("utf-8", "replace")
    if word and ids.parse_or_none(word) is None:
        raise Refusal(400, "an ID looks like 1767225600000-0")
    return word


_LOOKS: Final[dict[str, Callable[[Link, _Query], dict[str, Any]]]] = {
    "overview": lambda link, query: looks.overview(link),
    "queues": lambda link, query: looks.queues(link, query.db),
    "queue": lambda link, query: looks.queue(
        link, query.db, query.key, query.group, query.id("before")
    ),
    "streams": lambda link, query: looks.streams(link, query.db),
    "stream": lambda link, query: looks.stream(link, query.db, query.key),
    "schedules": lambda link, query: looks.schedules(link, query.db),
    "workers": lambda link, query: looks.workers(link, query.db),
    "job": lambda link, query: jobs.job(link, query.db, query.key, query.group, query.job),
    "search": lambda link, query: jobs.search(
        *(link, query.db, query.key, query.group),
        *(query.words("text"), query.words("part"), query.words("after")),
    ),
}
_CHANGES: Final[dict[str, Callable[[Link, _Query], dict[str, Any]]]] = {
    "redrive": lambda link, query: changes.dead(
        link, query.key, b"REDRIVE", query.ids, query.id("last")
    ),
    "purge-dead": lambda link, query: changes.dead(
        link, query.key, b"PURGE", query.ids, query.id("last")
    ),
    "purge": lambda link, query: changes.purge(link, query.key, query.group),
    "put": lambda link, query: changes.put(
        *(link, query.key, query.words("value"), query.number("delay_ms")),
        *(query.number("priority"), query.words("job_key")),
    ),
    "cancel": lambda link, query: changes.cancel(link, query.key, query.job),
    "move": lambda link, query: changes.move(link, query.key, query.job, query.number("delay_ms")),
    "pause": lambda link, query: changes.schedule(link, query.key, b"PAUSE"),
    "resume": lambda link, query: changes.schedule(link, query.key, b"RESUME"),
}


def _body(request: Request) -> dict[str, Any]:
    """The JSON object of a POST. Another site cannot send this content type unless we allow it. Raises Refusal."""
    content_type = request.header("Content-Type").partition(";")[0].strip().lower()
    if content_type != "application/json":
        raise Refusal(415, "the body must be application/json")
    try:
        found = json.loads(request.body)
    except (ValueError, RecursionError):
        raise Refusal(400, "the body is no JSON") from None
    if not isinstance(found, dict):
        raise Refusal(400, "the body must be a JSON object")
    return found


def _check_origin(request: Request) -> None:
    """Refuse what a page of another site made the browser send. Raises Refusal."""
    site, origin = request.header("Sec-Fetch-Site"), request.header("Origin")
    elsewhere = origin and origin.partition("://")[2] != request.header("Host")
    if elsewhere or site not in ("", "same-origin", "none"):
        raise Refusal(403, "this request comes from the page of another site")


def _name(request: Request) -> str:
    """The cookie's name. Cookies do not know ports, so each port has its own."""
    return f"tidelog-console-{request.port}"


def _cookie(request: Request) -> str:
    for part in request.header("Cookie").split(";"):
        name, _, value = part.strip().partition("=")
        if name == _name(request):
            return value
    return ""


def _set_cookie(request: Request, token: str, age: int | None) -> tuple[str, str]:
    end = "" if age is None else f"; Max-Age={age}"
    return "Set-Cookie", f"{_name(request)}={token}; Path=/; HttpOnly; SameSite=Strict{end}"


def _json(
    told: dict[str, Any], status: int = 200, headers: tuple[tuple[str, str], ...] = ()
) -> Response:
    return Response(status, "application/json", json.dumps(told).encode() + b"\n", headers)


@cache
def _file(name: str) -> bytes:
    found = pkgutil.get_data(__package__, name)
    assert found is not None, "the loader of this package reads its data"
    return found
