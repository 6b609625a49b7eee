"""The page in a real browser: what it shows, a login, a redrive, and payloads that try to be markup."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.server.conftest import Start
from tests.server.console import chromium, pictures
from tests.server.console.browsing import PASSWORD, Site, failing
from tests.until import until

from tidelog.testing import Clock

pytestmark = pytest.mark.slow

EVIL = "<img src=x onerror='window.pwned=1'><script>window.pwned=1</script>\"'&"


@pytest.fixture
def site(start: Start) -> Site:
    found = Site(start, console_write=True)
    found.user("on", f">{PASSWORD}", "~*", "&*", "+@all")
    return found


@pytest.fixture
def page(site: Site, tmp_path: Path) -> Iterator[chromium.Page]:
    assert chromium.program() is not None, "no browser is here: apt-get install chromium"
    with chromium.opened(tmp_path / "browser") as found:
        yield found


def home(site: Site) -> str:
    return f"http://127.0.0.1:{site.port}/console"


def test_a_login_and_a_redrive(site: Site, page: chromium.Page) -> None:
    queue = failing(site.db, 3)
    queue.put({"to": "zoe"})
    page.go(home(site))
    page.press("mails")
    page.until("document.querySelectorAll('#dead details').length === 3")
    assert "Sign in to redrive" in page.text()
    assert page.run("[...document.querySelectorAll('main button')].every((each) => each.disabled)")
    page.press("Sign in", "header")
    page.fill("login-user", "anna")
    page.fill("login-password", "wrong")
    page.press("Sign in", "#login")
    page.until("document.getElementById('login-why').textContent.startsWith('wrong user')")
    page.fill("login-password", PASSWORD)
    page.press("Sign in", "#login")
    page.until("document.getElementById('who').textContent === 'anna'")
    page.press("20", "#dead")  # the year of the newest dead job
    assert "Traceback (most recent call last)" in page.text() and "no mailbox 2" in page.text()
    page.press("Redrive", "#dead")
    page.press("Cancel", "#ask")
    page.press("Redrive", "#dead")
    page.press("Redrive", "#ask")
    page.until("document.querySelectorAll('#dead details').length === 2")
    assert len(queue.dead) == 2
    page.press("Redrive all dead")
    page.press("Redrive", "#ask")
    until(lambda: len(queue.dead) == 0)
    page.press("Purge waiting")
    page.press("Purge", "#ask")
    until(lambda: len(queue) == 0)
    page.press("Sign out", "header")
    page.until("document.getElementById('sign').textContent === 'Sign in'")
    assert [fault for fault in page.faults if "401" not in fault] == []


def test_payloads_that_try_to_be_markup(site: Site, page: chromium.Page) -> None:
    queue = site.db.queue(EVIL)
    queue.put({"text": EVIL}, headers={EVIL: EVIL})
    job = queue.get(EVIL)
    assert job is not None and job.fail(EVIL)
    queue.put({"text": EVIL}, headers={EVIL: EVIL})
    held = queue.get(EVIL)
    queue.put(EVIL)
    site.db.xadd(EVIL + ":stream", {EVIL: EVIL})
    assert held is not None
    page.go(home(site))
    page.press("<img")
    page.until("document.body.dataset.drawn === 'queue'")
    page.run("document.querySelectorAll('details').forEach((each) => (each.open = true))")
    assert page.text().count("<script>window.pwned=1</script>") > 5
    for name in ("#/streams", "#/store"):
        page.run(f"location.hash = {name!r}")
        page.until(f"document.body.dataset.drawn === {name.removeprefix('#/')!r}")
    page.run("location.hash = '#/streams'")
    page.press(EVIL[:10], "main")
    page.until("document.body.dataset.drawn === 'stream'")
    assert page.run("window.pwned === undefined")
    assert page.run("document.querySelectorAll('main img, main script').length") == 0
    assert page.faults == []


def test_the_views(site: Site, page: chromium.Page) -> None:
    for number in range(5):
        site.db.xadd("orders", {"item": f"tea {number}"})
    site.db.xgroup_create("orders", "packers", "0")
    site.db.xreadgroup("packers", "anna", {"orders": ">"}, count=2)
    site.db.db(3).xadd("elsewhere", {"f": "v"})
    page.go(home(site) + "/#/streams")
    page.press("orders")
    page.until("document.body.dataset.drawn === 'stream'")
    text = page.text()
    assert "Group packers" in text and "anna" in text and "Newest entries" in text
    page.press("Store", "header")
    page.until("document.body.dataset.drawn === 'store'")
    assert "Log and checkpoint" in page.text() and str(site.running.root) in page.text()
    page.press("Streams", "header")
    page.until("document.body.dataset.drawn === 'streams'")
    page.run("(db.value = '3', db.dispatchEvent(new Event('change')))")
    page.until("document.body.innerText.includes('elsewhere')")
    assert page.faults == []


def test_a_server_that_ends(site: Site, page: chromium.Page) -> None:
    page.go(home(site))
    page.until("document.body.dataset.drawn === 'queues'")
    site.running.serving.close()
    page.until("document.getElementById('state').textContent === 'the server does not answer'")


def test_the_pictures_of_the_guide(start: Start, page: chromium.Page) -> None:
    clock = Clock(pictures.START)
    site = Site(start, clock=clock)
    pictures.fill(site.db, clock)
    texts = []
    for name, picture in pictures.taken(page, home(site), site.db, clock):
        assert picture.startswith(b"\x89PNG") and (pictures.GUIDES / name).exists()
        assert name in (pictures.GUIDES / "console.md").read_text()
        texts.append(page.text())
    assert "invoices" in texts[0] and "/s" in texts[0]
    assert "no answer from the mail server" in texts[1] and "Traceback" in texts[1]
    assert page.faults == []
