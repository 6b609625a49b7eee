"""Chromium without a window, driven over a pipe by the DevTools protocol. No driver and no port is needed."""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from select import select
from typing import Any, Final

from tests.until import PATIENCE_S, WaitRanOut

NAMES: Final = ("chromium", "chromium-browser", "google-chrome")
# The pipe is descriptors 3 and 4 of the browser. Its other output is not needed.
START: Final = (
    "import os, sys; read, write, null = int(sys.argv[1]), int(sys.argv[2]), os.open(os.devnull, os.O_RDWR); "
    "os.dup2(null, 1); os.dup2(null, 2); os.dup2(read, 3); os.dup2(write, 4); os.execv(sys.argv[3], sys.argv[3:])"
)
OPTIONS: Final = (
    *("--headless=new", "--remote-debugging-pipe", "--no-first-run", "--no-default-browser-check"),
    *("--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--disable-extensions"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
    *("--host-resolver-rules=MAP * ~NOTFOUND , EXCLUDE 127.0.0.1", "--window-size=1100,820"),
)


def program() -> str | None:
    """The path of the browser; None if the machine has none."""
    return next(filter(None, map(shutil.which, NAMES)), None)


class Refused(Exception):
    """The browser refused a command: of a page that it is just leaving, for example."""


class Page:
    """One page. `faults` are the errors that the browser told: exceptions, and what the page's policy forbade."""

    def __init__(self, read: int, write: int) -> None:
        self._read, self._write = read, write
        self._number = 0
        self._buffer = b""
        self._session: str | None = None
        self.faults: list[str] = []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        attached = self.call("Target.attachToTarget", targetId=target, flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Log"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        """The result of one command of the protocol."""
        self._number += 1
        asked = {"id": self._number, "method": method, "params": params}
        if self._session is not None:
            asked["sessionId"] = self._session
        data = json.dumps(asked).encode() + b"\0"
        while data:
            data = data[os.write(self._write, data) :]
        while True:
            told = self._next()
            if told.get("id") == self._number:
                if "error" in told:
                    raise Refused(told["error"])
                result: dict[str, Any] = told["result"]
                return result
            self._note(told)

    def _next(self) -> dict[str, Any]:
        until = time.monotonic() + PATIENCE_S
        while b"\0" not in self._buffer:
            ready, _, _ = select([self._read], [], [], max(0.0, until - time.monotonic()))
            data = os.read(self._read, 1 << 20) if ready else b""
            assert data, "the browser does not answer"
            self._buffer += data
        line, _, self._buffer = self._buffer.partition(b"\0")
        found: dict[str, Any] = json.loads(line)
        return found

    def _note(self, told: dict[str, Any]) -> None:
        params = told.get("params", {})
        if told.get("method") == "Runtime.exceptionThrown":
            self.faults.append(json.dumps(params["exceptionDetails"]))
        elif told.get("method") == "Log.entryAdded" and params["entry"]["level"] == "error":
            self.faults.append(params["entry"]["text"])

    # --- what a person does

    def go(self, url: str) -> None:
        self.call("Page.navigate", url=url)

    def run(self, script: str) -> Any:
        """The value of an expression in the page."""
        told = self.call(
            "Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True
        )
        assert "exceptionDetails" not in told, told
        return told["result"].get("value")

    def until(self, script: str) -> None:
        """Wait until an expression is true."""
        begun = time.monotonic()
        found = f"(() => {{ try {{ return Boolean({script}) }} catch {{ return false }} }})()"
        while not self._has(found):
            if time.monotonic() - begun >= PATIENCE_S:
                raise WaitRanOut(script, self.faults, self.text())
            time.sleep(0.05)

    def _has(self, script: str) -> bool:
        try:
            return bool(self.run(script))
        except Refused:
            return False

    def press(self, text: str, within: str = "body") -> None:
        """Press the button, link or summary that begins with a text, as soon as it can be pressed."""
        kinds = ", ".join(f"{within} {kind}" for kind in ("button", "a", "summary"))
        chosen = (
            f"[...document.querySelectorAll({json.dumps(kinds)})].find((each) => each.checkVisibility()"
            f" && !each.disabled && each.textContent.trim().startsWith({json.dumps(text)}))"
        )
        # The page may be drawn again at any moment, so finding and pressing are one step.
        self.until(f"((found) => found && (found.click(), true))({chosen})")

    def click(self, selector: str) -> None:
        """Press the first element of a selector, as soon as it can be seen."""
        found = f"document.querySelector({json.dumps(selector)})"
        self.until(f"((each) => each?.checkVisibility() && (each.click(), true))({found})")

    def key(self, name: str, text: str = "") -> None:
        """Press and release a key; `text` is what it types."""
        for kind in ("keyDown", "keyUp"):
            typed = {"text": text} if text and kind == "keyDown" else {}
            code = {"windowsVirtualKeyCode": {"Tab": 9, "Enter": 13, "Escape": 27}.get(name, 0)}
            self.call("Input.dispatchKeyEvent", type=kind, key=name, code=name, **typed, **code)

    def type(self, text: str) -> None:
        """Write where the focus is."""
        self.call("Input.insertText", text=text)

    def again(self) -> None:
        """Wait until the page was drawn once more."""
        before = self.run("Number(document.body.dataset.look)")
        self.run("window.dispatchEvent(new Event('hashchange'))")
        self.until(f"Number(document.body.dataset.look) > {before}")

    def fill(self, id: str, text: str) -> None:
        """Write into a field."""
        self.run(f"document.getElementById({id!r}).value = {json.dumps(text)}")

    def text(self) -> str:
        """The texts of the page."""
        return str(self.run("document.body.innerText"))

    def size(self, width: int, height: int) -> None:
        """Set the size of the window, in pixels."""
        self.call(
            "Emulation.setDeviceMetricsOverride",
            **{"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False},
        )

    def picture(self) -> bytes:
        """The page as a PNG."""
        return base64.b64decode(self.call("Page.captureScreenshot", format="png")["data"])


@contextmanager
def opened(place: Path) -> Iterator[Page]:
    """A browser with one page. `place` is a directory for its files."""
    path = program()
    assert path is not None
    ours_in, theirs_out = os.pipe()
    theirs_in, ours_out = os.pipe()
    words = [path, *OPTIONS, f"--user-data-dir={place}"]
    browser = subprocess.Popen(
        [sys.executable, "-c", START, str(theirs_in), str(theirs_out), *words],
        pass_fds=(theirs_in, theirs_out),
        env={**os.environ, "HOME": str(place)},
    )
    os.close(theirs_in)
    os.close(theirs_out)
    try:
        page = Page(ours_in, ours_out)
        yield page
        page._session = None
        page.call("Browser.close")
    finally:
        os.close(ours_out)
        os.close(ours_in)
        try:
            browser.wait(PATIENCE_S)
        except subprocess.TimeoutExpired:
            browser.kill()
            browser.wait()
