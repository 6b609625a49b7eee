"""The page itself, and HTTP as browsers and others speak it."""

from __future__ import annotations

import re
import socket
import subprocess
from contextlib import closing
from pathlib import Path

from tests.server.clients.test_node import tool
from tests.server.console.browsing import Site

from tidelog.server.console import console as module
from tidelog.server.http import BODY_MAX

FOLDER = Path(module.__file__).parent


def test_the_page_and_its_files(site: Site) -> None:
    moved = site.send("GET", "/console")
    assert (moved.status, moved.headers["Location"]) == (308, "console/")
    page = site.send("GET", "/console/")
    assert page.status == 200 and page.headers["Content-Type"] == "text/html; charset=utf-8"
    names = {*re.findall(rb'(?:href|src)="([\w.]+)"', page.body)}
    for path in FOLDER.glob("*.js"):
        names |= {*re.findall(rb'from "./([\w.]+)"', path.read_bytes())}
    assert names == {b"console.css", b"console.js", b"elements.js", b"job.js", b"views.js"}
    for name in names:
        file = site.send("GET", f"/console/{name.decode()}")
        assert file.status == 200 and len(file.body) > 1000
    head = site.send("HEAD", "/console/")
    assert head.status == 200 and head.body == b""
    assert int(head.headers["Content-Length"]) == len(page.body)


def test_the_page_needs_nothing_that_its_policy_forbids() -> None:
    page = (FOLDER / "console.html").read_text()
    assert not re.search(r"<style|style=|\son\w+=|javascript:|https?://", page)
    assert all("src=" in each for each in re.findall(r"<script[^>]*>", page))


def test_the_script_makes_no_markup_of_texts() -> None:
    scripts = [path.read_text() for path in sorted(FOLDER.glob("*.js"))]
    assert len(scripts) == 4
    script = "".join(scripts)
    for word in (
        "innerHTML",
        "outerHTML",
        "insertAdjacentHTML",
        "document.write",
        "eval(",
        "Function(",
    ):
        assert word not in script
    # The name of the elements of a picture; nothing is loaded from there.
    assert re.findall(r'https?://[^"]*', script) == ["http://www.w3.org/2000/svg"]


def test_the_script_is_javascript() -> None:
    for path in FOLDER.glob("*.js"):
        module = ["--input-type=module", "--check"]
        done = subprocess.run(
            [tool("node"), *module],
            input=path.read_text(),
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert done.returncode == 0, (path.name, done.stderr)


def test_other_paths(site: Site) -> None:
    for path in ("x", "../x", "api/", "api/x", "%00", "console.html/"):
        assert site.send("GET", f"/console/{path}").status == 404, path
        sent = site.send("POST", f"/console/{path}", b"{}", Content_Type="application/json")
        assert sent.status in (401, 404), path
    assert site.send("GET", "/consolex").status == 404
    assert site.send("POST", "/consolex", b"{}").status == 405


def test_other_methods(site: Site) -> None:
    assert site.send("PUT", "/console/api/session").status == 501
    assert site.send("POST", "/metrics", b"{}").status == 405
    assert site.send("POST", "/console/", b"{}").status == 404


def raw(site: Site, data: bytes) -> bytes:
    """The answer to bytes that no client of HTTP would send."""
    with closing(socket.create_connection(("127.0.0.1", site.port), 60)) as link:
        link.sendall(data)
        link.shutdown(socket.SHUT_WR)
        found = b""
        while piece := link.recv(65536):
            found += piece
        return found


# fmt: off
BODIES = {
    b"": b"411",
    b"Content-Length: x\r\n": b"411",
    b"Content-Length: -1\r\n": b"411",
    b"Content-Length: %d\r\n" % (BODY_MAX + 1): b"413",
    b"Content-Length: 99999999999999999999\r\n": b"413",
    b"Transfer-Encoding: chunked\r\n": b"411",
    b"Content-Type: application/json\r\nContent-Length: 2\r\n": b"400",  # the body is cut
    b"Content-Type: application/json\r\nContent-Length: 0\r\n": b"400",
}
# fmt: on


def test_bodies_that_are_none(site: Site) -> None:
    for head, status in BODIES.items():
        line = b"POST /console/api/login HTTP/1.1\r\nHost: 127.0.0.1\r\n"
        assert raw(site, line + head + b"\r\n").split(b" ", 2)[1] == status, head


def test_bodies_that_are_no_object(site: Site) -> None:
    for body in (b"\xff", b"{", b"[" * 60_000, b"9" * 60_000):
        answer = site.send("POST", "/console/api/login", body, Content_Type="application/json")
        assert answer.status == 400, body[:10]


def test_headers_that_are_none(site: Site) -> None:
    for line in (b"Host: [", b"Host: 127.0.0.1\r\nOrigin: http://[", b"Cookie: =;;="):
        answer = raw(site, b"GET /console/api/queues HTTP/1.1\r\n" + line + b"\r\n\r\n")
        assert answer.split(b" ", 2)[1] in (b"401", b"403"), line
