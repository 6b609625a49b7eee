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


def sign_in(page: chromium.Page) -> None:
    """Sign in as anna, by the keyboard once the dialog is open."""
    page.click("#sign")
    page.fill("login-user", "anna")
    page.fill("login-password", PASSWORD)
    page.run("document.getElementById('login-password').focus()")
    page.key("Enter", "\r")
    page.until("document.getElementById('who').textContent === 'anna'")


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
    page.click("#dead summary")
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


def full(site: Site) -> None:
    """A store with long names and texts in every view."""
    word = "averylongwordthatdoesnotbreak" * 6
    queue = failing(site.db, 2, name="mails-" + word)
    queue.put({"to": word}, headers={word: word}, key=word)
    queue.put({"to": word}, delay=3600)
    assert queue.get("worker-" + word) is not None
    queue.put({"to": word})
    site.db.schedule(word, every=3600, queue=queue.name, value={"to": word})
    site.db.xadd("orders-" + word, {word: word})
    site.db.xgroup_create("orders-" + word, word, "0")
    site.db.xreadgroup(word, word, {"orders-" + word: ">"})


# What a page hides: beyond its width, cut off, or too small to be there at all.
HIDDEN = """(() => {
  const found = [];
  if (document.documentElement.scrollWidth > innerWidth) found.push(`width ${document.documentElement.scrollWidth}`);
  for (const each of document.querySelectorAll("header *, main *")) {
    if (!each.checkVisibility() || each.closest("svg, select")) continue;
    const box = each.getBoundingClientRect();
    const cut = getComputedStyle(each).overflowX !== "visible" && each.scrollWidth > each.clientWidth + 1;
    const beyond = box.right > innerWidth + 1 || box.left < 0;
    if (beyond || cut) found.push(`${each.tagName} ${each.textContent.slice(0, 40)}`);
  }
  return found;
})()"""


def test_nothing_is_hidden_at_375_pixels(site: Site, page: chromium.Page) -> None:
    full(site)
    page.size(375, 800)
    page.go(home(site))
    columns = [*"depth waiting paused scheduled dead oldest".split(), "in flight", "last hour"]
    page.until("document.body.dataset.drawn === 'queues'")
    told = page.run("[...document.querySelectorAll('td')].map((each) => each.dataset.label)")
    assert {*columns} <= {*told}, "each cell names its column"
    for name in ("queues", "schedules", "workers", "streams", "store"):
        page.run(f"location.hash = '#/{name}'")
        page.until(f"document.body.dataset.drawn === {name!r}")
        page.run("document.querySelectorAll('details').forEach((each) => (each.open = true))")
        assert page.run(HIDDEN) == [], name
    for view, press in (("queues", "mails"), ("streams", "orders")):
        page.run(f"location.hash = '#/{view}'")
        page.until(f"document.body.dataset.drawn === {view!r}")
        page.press(press, "main")
        page.until(f"document.body.dataset.drawn === {view.removesuffix('s')!r}")
        page.run("document.querySelectorAll('details').forEach((each) => (each.open = true))")
        assert page.run(HIDDEN) == [], view
    page.run("location.hash = '#/queues'")
    page.press("mails", "main")
    page.click("#dead dd a")  # what was open stays open
    page.until("document.body.dataset.drawn === 'job'")
    assert page.run(HIDDEN) == []
    page.key("/", "/")
    page.until("document.activeElement.id === 'text'")
    page.type("averylong")
    page.key("Enter", "\r")
    page.until("document.querySelectorAll('main tbody tr').length === 3")
    assert page.run(HIDDEN) == []


def test_the_keyboard_is_enough(site: Site, page: chromium.Page) -> None:
    failing(site.db, 2)
    page.go(home(site))
    page.until("document.body.dataset.drawn === 'queues'")

    def tab_to(text: str) -> None:
        for _ in range(60):
            page.key("Tab")
            if page.run("document.activeElement.textContent.trim()").startswith(text):
                return
        raise AssertionError(f"Tab never comes to {text}")

    tab_to("mails")
    page.again()
    focused = "document.activeElement.textContent"
    assert page.run(focused) == "mails", "the focus survives that the page is drawn again"
    assert page.run("getComputedStyle(document.activeElement).outlineStyle") == "solid"
    page.key("Enter", "\r")
    page.until("document.querySelectorAll('#dead details').length === 2")
    sign_in(page)
    tab_to("Redrive all dead")
    page.key("Enter", "\r")
    page.until("document.getElementById('ask').open")
    assert "Put all dead jobs of mails back?" in page.text()
    page.key("Escape")
    page.until("!document.getElementById('ask').open")
    assert len(site.db.queue("mails").dead) == 2
    page.key("/", "/")
    page.until("document.activeElement.id === 'text'")
    page.type("no mailbox 1")
    page.key("Enter", "\r")
    page.until("document.querySelectorAll('main tbody tr').length === 1")
    assert "Nothing is left to look at" in page.text()
    assert page.faults == []


# The least contrast of the texts that are shown, as WCAG counts it (4.5 is enough for small ones), and how light the
# ground is.
CONTRAST = """(() => {
  const canvas = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
  const light = (color) => {
    canvas.fillStyle = color;
    canvas.fillRect(0, 0, 1, 1);
    const [r, g, b] = [...canvas.getImageData(0, 0, 1, 1).data].map((part) => part / 255)
      .map((part) => (part <= 0.03928 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const ground = (each) => {
    const found = getComputedStyle(each).backgroundColor;
    return found === "rgba(0, 0, 0, 0)" ? ground(each.parentElement) : found;
  };
  let least = 21;
  for (const each of document.querySelectorAll("header *, main *")) {
    const own = [...each.childNodes].some((child) => child.nodeType === 3 && child.textContent.trim());
    if (!own || !each.checkVisibility() || each.closest("svg, option, :disabled")) continue;
    const pair = [light(getComputedStyle(each).color), light(ground(each))].sort((a, b) => b - a);
    least = Math.min(least, (pair[0] + 0.05) / (pair[1] + 0.05));
  }
  return [least, light(getComputedStyle(document.body).backgroundColor)];
})()"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_text_can_be_read(site: Site, page: chromium.Page, scheme: str) -> None:
    full(site)
    features = [{"name": "prefers-color-scheme", "value": scheme}]
    page.call("Emulation.setEmulatedMedia", features=features)
    page.go(home(site))
    page.until("document.body.dataset.drawn === 'queues'")
    for name in ("queues", "schedules", "workers", "streams", "store"):
        page.run(f"location.hash = '#/{name}'")
        page.until(f"document.body.dataset.drawn === {name!r}")
        least, ground = page.run(CONTRAST)
        assert least >= 4.5, name
        assert (ground < 0.1) is (scheme == "dark")


def test_schedules_and_jobs_are_changed(site: Site, page: chromium.Page) -> None:
    site.db.schedule("hourly", every=3600, queue="mails", value=1)
    queue = site.db.queue("mails")
    queue.put(1)
    page.go(home(site) + "/#/schedules")
    sign_in(page)
    page.press("Pause", "main")
    page.until("document.getElementById('ask').open")
    assert "Pause hourly? It puts no jobs into mails until it is resumed." in page.text()
    page.press("Pause", "#ask")
    until(lambda: site.db.schedules.list()[0].paused)
    page.press("Resume", "main")
    page.press("Resume", "#ask")
    until(lambda: not site.db.schedules.list()[0].paused)
    page.press("mails", "main")
    page.press("Put a job", "main")
    page.fill("form-value", "{")
    page.press("Put", "#form")
    page.until("document.getElementById('form-why').textContent.startsWith('the value is no JSON')")
    page.fill("form-value", '{"to": "zoe"}')
    page.fill("form-delay", "2h")
    page.press("Put", "#form")
    until(lambda: [each.value for each in queue.peek(scheduled=True)] == [{"to": "zoe"}])
    (job,) = queue.peek(scheduled=True)
    page.run(f"location.hash = '#/job?db=0&key=mails&group=workers&id={job.id}'")
    page.press("Move", "main")
    page.fill("form-delay", "soon")
    page.press("Move", "#form")
    page.until("document.getElementById('form-why').textContent.startsWith('a time is a number')")
    page.fill("form-delay", "1d")
    page.press("Move", "#form")
    page.until("document.querySelector('main').innerText.match(/in (1d|23h 59m)/)")
    assert page.run("document.querySelector('time').title").endswith("Z")
    page.press("Cancel job", "main")
    page.until("document.getElementById('ask').open")
    assert "Cancel this delayed job for good?" in page.text()
    page.press("Cancel", "#ask")
    until(lambda: not queue.peek(scheduled=True))
    assert [fault for fault in page.faults if "404" not in fault] == []


def test_the_last_hour_is_drawn(start: Start, page: chromium.Page) -> None:
    clock = Clock(pictures.START)
    site = Site(start, clock=clock)
    queue = site.db.queue("mails")
    page.go(home(site))
    page.until("document.body.dataset.drawn === 'queues'")
    for number in range(70):
        queue.put(number)
        clock.advance(60)
        page.again()
    text = "document.querySelector('.spark title').textContent"
    assert page.run(text) == "depth of mails in the last hour: 11 to 70, seen in 60 minutes"
    page.run("location.reload()")
    page.until(f"{text}.includes('seen in ')")


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
    assert "It was given up." in texts[2] and "Retry now" in texts[2]
    assert page.faults == []
