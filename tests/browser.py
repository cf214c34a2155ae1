"""Headless Chromium, driven over a pipe (DevTools protocol): open a page, click, evaluate, take a picture."""

import base64
import contextlib
import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.conftest import PATIENCE_S

CHROMIUM = next((path for name in ("chromium", "chromium-browser", "google-chrome") if (path := shutil.which(name))), None)


class Page:
    """One page of a browser that was started for it."""

    def __init__(self, send: int, receive: int) -> None:
        self._send, self._receive = send, receive
        self._number, self._rest, self._session = 0, b"", ""
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        self.errors: list[str] = []
        self.requests: list[str] = []
        for domain in ("Page", "Runtime", "Network"):
            self.call(f"{domain}.enable")
        self.call("Emulation.setDeviceMetricsOverride", width=1300, height=1000, deviceScaleFactor=1, mobile=False)

    def call(self, method: str, **params: Any) -> Any:
        """Call a method and return its result; events on the way are noted."""
        self._number += 1
        message = {"id": self._number, "method": method, "params": params} | ({"sessionId": self._session} if self._session else {})
        os.write(self._send, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._read()
            if answer.get("id") == self._number:
                if "error" in answer:
                    raise AssertionError(f"{method}: {answer['error']['message']}")
                return answer["result"]
            if answer.get("method") == "Runtime.exceptionThrown":
                self.errors.append(str(answer["params"]["exceptionDetails"]))
            elif answer.get("method") == "Network.requestWillBeSent":
                self.requests.append(answer["params"]["request"]["url"])

    def _read(self) -> Any:
        while b"\0" not in self._rest:
            part = os.read(self._receive, 1 << 16)
            if not part:
                raise AssertionError("the browser has ended")
            self._rest += part
        message, self._rest = self._rest.split(b"\0", 1)
        return json.loads(message)

    def open(self, path: Path) -> None:
        """Load a file and wait until its script says that it is ready."""
        self.call("Page.navigate", url=path.as_uri())
        self.wait("document.body && document.body.dataset.ready")

    def wait(self, condition: str) -> None:
        """Wait until a condition in JavaScript holds."""
        ready = f"new Promise(r => {{ const w = () => {condition} ? r(true) : setTimeout(w, 20); w(); }})"
        self.call("Runtime.evaluate", expression=ready, awaitPromise=True, timeout=int(1000 * PATIENCE_S))

    def value(self, expression: str) -> Any:
        """Evaluate JavaScript."""
        return self.call("Runtime.evaluate", expression=expression, returnByValue=True)["result"].get("value")

    def mouse(self, selector: str, kind: str = "click", x: float = 0.5, y: float = 0.5, **more: Any) -> None:
        """Click on, move over or turn the wheel over a place in an element."""
        box = self.value(f"(e => {{ e.scrollIntoView({{block: 'center'}}); return e.getBoundingClientRect().toJSON(); }})"
                         f"(document.querySelector({json.dumps(selector)}))")  # fmt: skip
        at = {"x": box["x"] + x * box["width"], "y": box["y"] + y * box["height"]}
        if kind == "click":
            for step in ("mousePressed", "mouseReleased"):
                self.call("Input.dispatchMouseEvent", type=step, button="left", clickCount=1, **at)
        else:
            self.call("Input.dispatchMouseEvent", type=kind, **at, **more)

    def picture(self, path: Path, whole: bool = False) -> None:
        """Save a PNG of what is seen, or of the whole page."""
        path.write_bytes(base64.b64decode(self.call("Page.captureScreenshot", captureBeyondViewport=whole)["data"]))


@contextlib.contextmanager
def page(profile: Path) -> Iterator[Page]:
    """Start Chromium with a fresh profile, and end it."""
    to_browser, from_browser = os.pipe(), os.pipe()

    def wire() -> None:
        os.dup2(to_browser[0], 3)
        os.dup2(from_browser[1], 4)

    words = ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--remote-debugging-pipe", "--no-first-run"]
    command = [str(CHROMIUM), *words, f"--user-data-dir={profile}"]
    for fd in (to_browser[0], from_browser[1]):
        os.set_inheritable(fd, True)
    browser = subprocess.Popen(command, preexec_fn=wire, close_fds=False, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    os.close(to_browser[0])
    os.close(from_browser[1])
    try:
        yield Page(to_browser[1], from_browser[0])
    finally:
        browser.kill()
        browser.wait()
        os.close(to_browser[1])
        os.close(from_browser[0])
