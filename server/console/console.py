"""Console: answers the requests under /console. It decides who may see and change; the commands decide the rest.

    GET  /console/                        the page, with console.css and console.js beside it
    GET  /console/api/session             who is signed in, and what the page may do
    GET  /console/api/overview            INFO
    GET  /console/api/queues, queue       ?db= &key= &group= &before=
    GET  /console/api/streams, stream     ?db= &key=
    POST /console/api/login, logout       {"user", "password"}
    POST /console/api/redrive, purge-dead, purge

Without a login the reader is the default user, as on the port of the commands: only while that user needs no password,
in protected mode only from this machine, and only under an IP address or `localhost`, since the page of another site
can make a browser believe that its own name stands for this machine. With a login the reader is that user. A change
needs the option console-write, a login, and the login's CSRF token in a header. A request that a page of another site
made a browser send is refused. docs/decisions/console.md has the reasons.
"""

from __future__ import annotations

import ipaddress
import json
import logging
import pkgutil
from collections.abc import Callable, Mapping
from functools import cache
from time import monotonic
from typing import Any, Final, NamedTuple
from urllib.parse import parse_qs, urlsplit

from tidelog.engine import ids
from tidelog.engine.errors import CommandError
from tidelog.server.acl.user import User
from tidelog.server.connection import ConnectionHost
from tidelog.server.console import changes, looks, shown
from tidelog.server.console.link import Link, NoAnswer
from tidelog.server.console.logins import Login, Logins, TooMany, same

ROOT: Final = "/console"
BODY_MAX: Final = 64 << 10  # bytes of a request
IDS_MAX: Final = 1000  # that one request names
CSRF: Final = "X-CSRF-Token"
_FILES: Final = {
    "": ("console.html", "text/html; charset=utf-8"),
    "console.css": ("console.css", "text/css; charset=utf-8"),
    "console.js": ("console.js", "text/javascript; charset=utf-8"),
}
# The page loads nothing but its own two files, and nothing may frame it.
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


class Request(NamedTuple):
    """One HTTP request.

    header    the value of a header, whatever the case of its name; empty if there is none
    peer      IP address and port of the client
    port      of this server
    """

    method: str
    target: str
    header: Callable[[str], str]
    body: bytes
    peer: tuple[str, int]
    port: int


class Response(NamedTuple):
    """Its answer."""

    status: int
    content_type: str
    body: bytes
    headers: tuple[tuple[str, str], ...] = ()


class Refusal(Exception):
    """The request is not answered. `login`: a login may help."""

    def __init__(self, status: int, text: str, *, login: bool = False) -> None:
        super().__init__(text)
        self.status, self.login = status, login


class Console:
    """The console of one server. Its methods run in threads of the HTTP server."""

    def __init__(self, server: ConnectionHost, clock: Callable[[], float] = monotonic) -> None:
        self._server = server
        self.logins = Logins(server.acl, clock)

    def answer(self, request: Request) -> Response:
        """The response to a request whose path begins with ROOT."""
        found = self._answer(request)
        return found._replace(headers=(*_HEADERS, *found.headers))

    def _answer(self, request: Request) -> Response:
        path = urlsplit(request.target).path.removeprefix(ROOT)
        try:
            if not self._server.config["console"]:
                raise Refusal(404, "the console is switched off (option console)")
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
        login = self.logins.find(token) if token else None
        if request.method == "POST":
            return self._post(request, name, token, login)
        if request.method not in ("GET", "HEAD"):
            raise Refusal(405, f"{request.method} is not allowed here")
        if name == "session":
            return _json(self._session(request, login))
        if name not in _LOOKS:
            raise Refusal(404, "there is no such page")
        query = {
            key: words[-1] for key, words in parse_qs(urlsplit(request.target).query, True).items()
        }
        return _json(self._ask(request, login, lambda link: _LOOKS[name](link, _Query(query))))

    def _session(self, request: Request, login: Login | None) -> dict[str, Any]:
        """Answer what the page asks for first."""
        user = None if login is None else shown.text(login.user.name)
        write = bool(self._server.config["console-write"])
        may_read = login is not None or self._anonymous(request) is None
        told = {"user": user, "csrf": None if login is None else login.csrf}
        return told | {
            "may_read": may_read,
            "writable": write,
            "may_write": write and user is not None,
        }

    def _post(self, request: Request, name: str, token: str, login: Login | None) -> Response:
        given = _body(request)
        if name == "login":
            return self._sign_in(request, given)
        if login is None:
            raise Refusal(401, "sign in first", login=True)
        if not same(request.header(CSRF), login):
            raise Refusal(403, f"the header {CSRF} is missing or wrong; load the page again")
        if name == "logout":
            self.logins.sign_out(token)
            return _json({}, headers=(_set_cookie(request, "", 0),))
        if name not in _CHANGES:
            raise Refusal(404, "there is no such action")
        if not self._server.config["console-write"]:
            raise Refusal(403, "the console only reads; the option console-write is no")
        query = _Query(given)
        done = self._ask(request, login, lambda link: _CHANGES[name](link, query))
        _logger.info(
            "console: user %s at %s: %s of %s: %d jobs",
            *(ascii(shown.text(login.user.name)), request.peer[0], name),
            *(ascii(shown.text(query.key)), done["done"]),
        )
        return _json(done)

    def _sign_in(self, request: Request, given: dict[str, Any]) -> Response:
        user, password = given.get("user"), given.get("password")
        if not isinstance(user, str) or not isinstance(password, str):
            raise Refusal(400, "user and password must be texts")
        try:
            found = self.logins.sign_in(user, password, request.peer[0])
        except TooMany:
            raise Refusal(429, "too many failed logins from this address; wait a minute") from None
        except UnicodeEncodeError:
            found = None
        if found is None:
            _logger.warning(
                "console: %s at %s could not sign in", ascii(user[:100]), request.peer[0]
            )
            raise Refusal(
                401, "wrong user or password, or a user who is off or needs no password", login=True
            )
        token, login = found
        _logger.info("console: user %s at %s signed in", ascii(user), request.peer[0])
        cookie = _set_cookie(request, token, None)
        return _json(self._session(request, login), headers=(cookie,))

    def _ask(
        self, request: Request, login: Login | None, work: Callable[[Link], dict[str, Any]]
    ) -> dict[str, Any]:
        """Do the work over a link of the user who asks. Raises Refusal."""
        if login is None:
            why = self._anonymous(request)
            if why is not None:
                raise Refusal(401, why, login=True)
        user: User = self._server.acl.default if login is None else login.user
        try:
            with Link(self._server, user, _shown_peer(request)) as link:
                return work(link)
        except CommandError as error:
            denied = error.line.startswith(b"NOPERM")
            raise Refusal(403 if denied else 409, str(error), login=denied) from None
        except looks.NotThere as error:
            raise Refusal(404, str(error)) from None
        except NoAnswer as error:
            raise Refusal(503, str(error)) from None

    def _anonymous(self, request: Request) -> str | None:
        """Why a reader without a login is refused; None if the default user may read for everybody."""
        if not self._server.acl.default.open:
            return "sign in: the default user has a password"
        if self._server.config["protected-mode"] and not _is_loopback(request.peer[0]):
            return "sign in: in protected mode, only this machine reads without a login"
        host = _host(f"//{request.header('Host')}")
        if host != "localhost" and _address(host) is None:
            return "sign in, or use an IP address or localhost instead of a host name"
        return None


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
}
_CHANGES: Final[dict[str, Callable[[Link, _Query], dict[str, Any]]]] = {
    "redrive": lambda link, query: changes.redrive(
        link, query.db, query.key, query.ids, query.id("last")
    ),
    "purge-dead": lambda link, query: changes.purge_dead(
        link, query.db, query.key, query.ids, query.id("last")
    ),
    "purge": lambda link, query: changes.purge(link, query.db, query.key, query.group),
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
    site = request.header("Sec-Fetch-Site")
    origin = request.header("Origin")
    if site not in ("", "same-origin", "none"):
        raise Refusal(403, "this request comes from the page of another site")
    if origin and origin.partition("://")[2] != request.header("Host"):
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


def _host(url: str) -> str:
    """The name or address in a URL, without brackets and port; empty if there is none."""
    try:
        return urlsplit(url).hostname or ""
    except ValueError:
        return ""


def _address(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        return None


def _shown_peer(request: Request) -> str:
    host, port = request.peer
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _is_loopback(peer: str) -> bool:
    address = _address(peer)
    mapped = getattr(address, "ipv4_mapped", None)
    return bool(address is not None and (mapped or address).is_loopback)


@cache
def _file(name: str) -> bytes:
    found = pkgutil.get_data(__package__, name)
    assert found is not None, "the loader of this package reads its data"
    return found
