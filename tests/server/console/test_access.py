"""Access to the console: readers without a login, logins and their end, permissions, other sites' pages."""

from __future__ import annotations

import json
import logging
import re
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from tests.server.conftest import Start
from tests.server.console.browsing import PASSWORD, Site, failing

from tidelog.server.acl.user import User
from tidelog.server.console import logins
from tidelog.server.console.console import Console
from tidelog.server.console.users import Users
from tidelog.server.http import Request, Response


def asked(site: Site, **options: object) -> Response:
    """An answer to a request that no test can send from here: of another machine, or under another name."""
    told = {
        "method": "GET", "target": "/console/api/queues", "header": {"Host": "127.0.0.1"},
        "body": b"", "peer": ("127.0.0.1", 5000), "port": site.port, **options,
    }  # fmt: skip
    headers = told.pop("header")
    assert isinstance(headers, dict)
    return Console(entry_of(site)).answer(
        Request(header=lambda name: headers.get(name, ""), **told)  # type: ignore[arg-type]
    )


def entry_of(site: Site) -> Users:
    metrics = site.running.server.listeners.metrics
    assert metrics is not None
    assert isinstance(metrics.console.entry, Users)
    return metrics.console.entry


# --- without a login


def test_the_default_user_reads_without_a_login(site: Site) -> None:
    told = site.get("session")
    assert told == {
        "user": None, "csrf": None, "may_read": True, "may_write": False, "signs_in": True,
        "tells": False, "read_only": "the console only reads; the option console-write is no",
    }  # fmt: skip
    assert site.get("queues")["queues"] == []


def test_a_password_of_the_default_user_asks_for_a_login(start: Start) -> None:
    site = Site(start, requirepass=PASSWORD)
    assert not site.get("session")["may_read"]
    for name in ("overview", "queues", "streams", "queue", "stream"):
        answer = site.look(name)
        assert (answer.status, answer.told["login"]) == (401, True)
    assert site.sign_in("default").status == 200
    assert site.get("queues")["queues"] == []


# fmt: off
HOSTS = {
    "127.0.0.1": 200, "127.0.0.1:9121": 200, "localhost:9121": 200, "[::1]:9121": 200, "10.0.0.7": 200,
    "evil.example": 401, "127.0.0.1.evil.example": 401, "": 401, "[": 401, "localhost.evil.example:9121": 401,
}
# fmt: on


def test_a_name_of_another_site_needs_a_login(site: Site) -> None:
    """The page of a site whose name was made to lead to this machine has that name in Host."""
    assert {host: asked(site, header={"Host": host}).status for host in HOSTS} == HOSTS


def test_other_machines_in_protected_mode(start: Start) -> None:
    site = Site(start)
    for host, status in (("::1", 200), ("::ffff:127.0.0.1", 200), ("10.0.0.7", 401), ("::2", 401)):
        assert asked(site, peer=(host, 5000)).status == status, host
    opened = Site(start, protected_mode=False)
    assert asked(opened, peer=("10.0.0.7", 5000)).status == 200


def test_a_default_user_who_is_off(site: Site) -> None:
    site.anna()
    site.user("off", name="default")
    assert site.get("queues")["queues"] == []
    site.cookie = ""
    assert site.look("queues").status == 401


def test_permissions_of_the_default_user(site: Site) -> None:
    site.db.xadd("orders", {"f": "v"})
    site.db.xadd("secret", {"f": "v"})
    site.user("resetkeys", "~orders", name="default")
    assert [row["key"] for row in site.get("streams")["streams"]] == ["orders"]
    assert site.look("stream", key="secret").status == 403
    site.user("-scan", name="default")
    answer = site.look("queues")
    assert answer.status == 403 and answer.told["error"].startswith("NOPERM")


# --- the login


def test_a_login(site: Site) -> None:
    site.user("on", f">{PASSWORD}", "~*", "+@all")
    answer = site.sign_in()
    assert answer.status == 200 and answer.told["user"] == "anna"
    cookie = answer.headers["Set-Cookie"]
    assert cookie.startswith(f"tidelog-console-{site.port}=") and len(site.cookie) > 60
    assert "HttpOnly" in cookie and "SameSite=Strict" in cookie
    assert answer.told["csrf"] not in cookie
    assert site.get("session")["user"] == "anna"
    with site.running.client() as client:
        assert client.acl_whoami() == "default" or client.acl_whoami() == b"default"


def test_the_end_of_a_login(site: Site) -> None:
    site.anna()
    cookie = site.cookie
    answer = site.post("logout", {})
    assert answer.status == 200 and "Max-Age=0" in answer.headers["Set-Cookie"]
    assert site.get("session")["user"] is None and site.cookie == cookie


# fmt: off
@pytest.mark.parametrize("rules", [
    ["off"], [f"<{PASSWORD}"], ["resetpass"], ["nopass"], ["reset"],
])
# fmt: on
def test_a_user_who_changes_is_signed_out(site: Site, rules: list[str]) -> None:
    site.anna()
    site.user(*rules)
    assert site.get("session")["user"] is None
    with site.running.client() as client:
        assert client.acl_deluser("anna") == 1
    site.user("on", f">{PASSWORD}", "~*", "+@all")
    assert site.get("session")["user"] is None


def test_a_user_who_is_removed_and_made_again(site: Site) -> None:
    site.anna()
    with site.running.client() as client:
        client.acl_deluser("anna")
    site.user("on", f">{PASSWORD}", "~*", "+@all")
    assert site.get("session")["user"] is None


class Hands:
    """A clock for logins."""

    now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock(site: Site, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hands]:
    hands = Hands()
    monkeypatch.setattr(entry_of(site).logins, "_clock", hands)
    yield hands


def test_logins_end_with_time(site: Site, clock: Hands) -> None:
    site.anna()
    for _ in range(int(logins.LIFE_S // 1000)):
        clock.now += 1000
        assert site.get("session")["user"] == "anna"
    clock.now += 1000
    assert site.get("session")["user"] is None
    assert site.sign_in().status == 200
    clock.now += logins.IDLE_S + 1
    assert site.get("session")["user"] is None


def test_the_number_of_logins_is_bounded(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logins, "LOGINS_MAX", 2)
    site.anna()
    first = site.cookie
    assert site.sign_in().status == 200
    second = site.cookie
    site.cookie = first
    assert site.get("session")["user"] == "anna"  # now the second one was idle for longest
    assert site.sign_in().status == 200
    assert site.get("session")["user"] == "anna"
    site.cookie = second
    assert site.get("session")["user"] is None


def test_wrong_passwords(site: Site, clock: Hands, caplog: pytest.LogCaptureFixture) -> None:
    site.user("on", f">{PASSWORD}", "~*", "+@all")
    with caplog.at_level(logging.WARNING, "tidelog.server"):
        for user, password in (("anna", "wrong"), ("nobody\n", PASSWORD), ("anna", ""), ("default", "")):
            answer = site.sign_in(user, password)
            assert answer.status == 401 and "Set-Cookie" not in answer.headers
    assert "'nobody\\n' at 127.0.0.1 could not sign in" in caplog.text
    assert PASSWORD not in caplog.text
    for _ in range(logins.FAILURES_MAX):
        site.sign_in("anna", "wrong")
    assert site.sign_in().status == 429
    clock.now += logins.FAILURES_S + 1
    assert site.sign_in().status == 200


def test_attempts_count_before_the_password_is_checked(site: Site) -> None:
    """So that many at once are not all let through."""
    site.user("on", f">{PASSWORD}", "~*", "+@all")
    acl = site.running.server.acl
    inside, go_on = threading.Semaphore(0), threading.Event()

    class Slow:
        users = acl.users

        def authenticate(self, name: bytes, password: bytes) -> User | None:
            assert password != PASSWORD.encode(), "it is one attempt too many"
            inside.release()
            assert go_on.wait(60)
            return acl.authenticate(name, password)

    found = logins.Logins(Slow(), lambda: 1.0)  # type: ignore[arg-type]
    with ThreadPoolExecutor(logins.FAILURES_MAX) as pool:
        wrong = [
            pool.submit(found.sign_in, "anna", "wrong", "peer") for _ in range(logins.FAILURES_MAX)
        ]
        try:
            for _ in wrong:
                assert inside.acquire(timeout=60)
            with pytest.raises(logins.TooMany):
                found.sign_in("anna", PASSWORD, "peer")
        finally:
            go_on.set()
        assert [each.result() for each in wrong] == [None] * logins.FAILURES_MAX


def test_a_login_as_one_user_forgets_no_failure_as_another(site: Site) -> None:
    site.user("on", f">{PASSWORD}", "~*", "+@all")
    for _ in range(logins.FAILURES_MAX - 1):
        assert site.sign_in("admin", "wrong").status == 401
        assert site.sign_in().status == 200
    assert site.sign_in("admin", "wrong").status == 401
    assert site.sign_in("admin", "wrong").status == 429


def test_one_address_does_not_lock_out_others(site: Site, clock: Hands) -> None:
    site.user("on", f">{PASSWORD}", "~*", "+@all")
    for number in range(logins.FAILURES_MAX + 1):
        assert (site.sign_in("anna", "wrong").status == 429) == (number == logins.FAILURES_MAX)
    body = json.dumps({"user": "anna", "password": PASSWORD}).encode()
    headers = {"Host": "127.0.0.1", "Content-Type": "application/json"}
    target = "/console/api/login"
    answer = asked(site, method="POST", target=target, header=headers, body=body, peer=("10.0.0.7", 1))
    assert answer.status == 200


def test_a_user_without_a_password_cannot_sign_in(site: Site) -> None:
    site.user("on", "nopass", "~*", "+@all")
    assert site.sign_in("anna", "anything").status == 401


def test_a_login_that_is_none(site: Site) -> None:
    cases: tuple[object, ...] = ({}, {"user": "anna"}, {"user": 1, "password": 2}, [], "x", 7)
    for told in cases:
        assert site.post("login", told).status == 400, told


def test_a_name_that_is_no_text(site: Site) -> None:
    assert site.sign_in("\ud800", "\ud800").status == 401


def test_what_the_user_may_not_see(site: Site) -> None:
    failing(site.db, 1, "mails")
    failing(site.db, 1, "orders")
    site.user("on", f">{PASSWORD}", "~mails*", "+@all")
    assert site.sign_in().status == 200
    assert [row["name"] for row in site.get("queues")["queues"]] == ["mails"]
    assert site.look("queue", key="orders", group="workers").status == 403
    assert site.get("queue", key="mails", group="workers")["dead"] == 1


# --- changes


@pytest.fixture
def writing(start: Start) -> Site:
    """A console that may write, with a dead job, and anna signed in."""
    site = Site(start, console_write=True)
    failing(site.db, 1)
    site.anna()
    return site


REDRIVE = {"db": 0, "key": "mails", "all": True}


def test_a_change_needs_the_option(site: Site) -> None:
    failing(site.db, 1)
    site.anna()
    assert not site.get("session")["may_write"]
    answer = site.post("redrive", REDRIVE)
    assert answer.status == 403 and "console-write" in answer.told["error"]
    with site.running.client() as client:
        client.config_set("console-write", "yes")
    assert site.post("redrive", REDRIVE).told["done"] == 1


def test_a_change_needs_a_login(writing: Site) -> None:
    cookie, writing.cookie = writing.cookie, ""
    for name in ("redrive", "purge", "purge-dead", "logout"):
        answer = writing.post(name, REDRIVE)
        assert (answer.status, answer.told["login"]) == (401, True)
    writing.cookie = cookie + "x"
    assert writing.post("redrive", REDRIVE).status == 401


@pytest.mark.parametrize("token", ["", "wrong", "\u00e4"])
def test_a_change_needs_the_token_of_the_login(writing: Site, token: str) -> None:
    for name in ("redrive", "logout"):
        assert writing.post(name, REDRIVE, X_CSRF_Token=token).status == 403
    assert len(writing.db.queue("mails").dead) == 1
    own = writing.csrf
    assert writing.sign_in().status == 200
    assert writing.post("redrive", REDRIVE, X_CSRF_Token=own).status == 403
    assert writing.post("redrive", REDRIVE).status == 200


def test_a_change_needs_the_permission(writing: Site) -> None:
    writing.user("-queue|dead")
    answer = writing.post("redrive", REDRIVE)
    assert answer.status == 403 and answer.told["error"].startswith("NOPERM")
    writing.user("+@all", "resetkeys", "~other")
    assert writing.post("redrive", REDRIVE).status == 403
    assert len(writing.db.queue("mails").dead) == 1


# fmt: off
@pytest.mark.parametrize("headers", [
    {"Sec_Fetch_Site": "cross-site"}, {"Sec_Fetch_Site": "same-site"}, {"Origin": "https://evil.example"},
    {"Origin": "null"}, {"Origin": "http://127.0.0.1:1"},
])
# fmt: on
def test_what_the_page_of_another_site_sends(writing: Site, headers: dict[str, str]) -> None:
    assert writing.post("redrive", REDRIVE, **headers).status == 403
    assert writing.post("login", {"user": "anna", "password": PASSWORD}, **headers).status == 403
    assert writing.send("GET", "/console/api/queues", None, **headers).status == 403
    assert len(writing.db.queue("mails").dead) == 1


def test_what_the_own_page_sends(writing: Site) -> None:
    own = {"Sec_Fetch_Site": "same-origin", "Origin": f"http://127.0.0.1:{writing.port}"}
    assert writing.post("redrive", REDRIVE, **own).status == 200


def test_what_a_form_of_another_site_can_send(writing: Site) -> None:
    for content_type in ("text/plain", "application/x-www-form-urlencoded", ""):
        assert writing.post("redrive", REDRIVE, Content_Type=content_type).status == 415


def test_a_follower_refuses(start: Start) -> None:
    leader = start()
    site = Site(start, replicaof=f"127.0.0.1 {leader.port}", console_write=True)
    site.anna()
    answer = site.post("purge", {"db": 0, "key": "mails", "group": "workers"})
    assert answer.status == 409 and "READONLY" in answer.told["error"]


def test_nothing_secret_is_in_an_address(writing: Site) -> None:
    """A token in an address would be in logs and in the history of the browser."""
    for token in (writing.cookie.partition("=")[2], writing.csrf):
        answer = writing.send("GET", f"/console/api/session?token={token}&csrf={token}", Cookie="a=b")
        assert answer.told["user"] is None
    assert not re.search(rb"token|csrf=", writing.send("GET", "/console/").body)


# --- the whole


def test_every_answer_has_the_headers(site: Site) -> None:
    for path in ("/console", "/console/", "/console/console.js", "/console/api/queues", "/console/x"):
        headers = site.send("GET", path).headers
        policy = headers["Content-Security-Policy"]
        assert "default-src 'none'" in policy and "unsafe" not in policy
        assert "frame-ancestors 'none'" in policy and headers["X-Frame-Options"] == "DENY"
        assert headers["X-Content-Type-Options"] == "nosniff"
        assert headers["Cache-Control"] == "no-store"
        assert headers["Referrer-Policy"] == "no-referrer"
        assert "Access-Control-Allow-Origin" not in headers


def test_the_option_that_switches_it_off(start: Start) -> None:
    site = Site(start, console=False)
    for path in ("/console", "/console/", "/console/api/session"):
        assert site.send("GET", path).status == 404
    assert site.send("GET", "/health").status == 200
    with site.running.client() as client:
        client.config_set("console", "yes")
    assert site.send("GET", "/console/").status == 200
