"""Drive a headless Chromium over a pipe with the DevTools protocol: no driver, no port, no further package."""

import base64
import contextlib
import fcntl
import json
import os
import select
import shutil
import subprocess
import sys
import tempfile
import time

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
OPTIONS = (
    "--headless=new",
    "--remote-debugging-pipe",
    "--no-first-run",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-background-networking",
    "--disable-extensions",
    "--hide-scrollbars",
)
START = "import os, sys; a = sys.argv; os.dup2(int(a[1]), 3); os.dup2(int(a[2]), 4); os.execv(a[3], a[3:])"
PATIENCE = 60  # seconds


def find_chromium():
    return next(filter(None, map(shutil.which, NAMES)), None)


class Browser:
    """One page; `messages` collects what it writes to the console and what it throws."""

    def __init__(self, executable):
        self._profile = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        theirs_in, self._out = os.pipe()
        self._in, theirs_out = os.pipe()
        high = [fcntl.fcntl(end, fcntl.F_DUPFD, 10) for end in (theirs_in, theirs_out)]  # clear of 3 and 4
        sandbox = ["--no-sandbox"] if os.geteuid() == 0 else []
        line = [executable, *OPTIONS, *sandbox, f"--user-data-dir={self._profile.name}", "about:blank"]
        self._process = subprocess.Popen(
            [sys.executable, "-c", START, *map(str, high), *line],
            pass_fds=high,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        for end in (theirs_in, theirs_out, *high):
            os.close(end)
        self._buffer, self._number, self._session, self._answers = b"", 0, None, {}
        self.messages, self.requests, self._loaded = [], [], False

    def __enter__(self):
        try:
            target = self.call("Target.createTarget", url="about:blank")["targetId"]
            self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
            for domain in ("Page", "Runtime", "Log", "Network"):
                self.call(f"{domain}.enable")
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        with contextlib.suppress(OSError, TimeoutError):
            self._session = None
            self.call("Browser.close")
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(10)
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait(10)
        os.close(self._in)
        os.close(self._out)
        self._profile.cleanup()

    def show(self, url, *, width, height=900, dark=False, scale=1):
        """Open a page on a screen of this width, and wait until it is loaded."""
        scheme = [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]
        self.call("Emulation.setEmulatedMedia", features=scheme)
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=scale,
            mobile=width < 600,
        )
        self.messages, self.requests, self._loaded = [], [], False
        self.call("Page.navigate", url=url)
        self._wait(lambda: self._loaded)

    def evaluate(self, expression):
        """Return the value of a JavaScript expression."""
        answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def wait_for(self, expression):
        """Wait until a JavaScript expression is true."""
        milliseconds = 1000 * PATIENCE
        found = self.evaluate(
            f"""new Promise((resolve) => {{
                const began = Date.now();
                const look = () => {{
                    if ({expression}) resolve(true);
                    else if (Date.now() - began > {milliseconds}) resolve(false);
                    else setTimeout(look, 10);
                }};
                look();
            }})"""
        )
        if not found:
            raise TimeoutError(f"{expression} did not become true within {PATIENCE} s")

    def press(self, *keys):
        """Press keys one after the other, as a person does: "j", "Enter", "ArrowDown"."""
        for key in keys:
            text = {"Enter": "\r"}.get(key, key if len(key) == 1 else "")
            code = {"Enter": 13, "Escape": 27, "Tab": 9, "ArrowDown": 40, "ArrowUp": 38}.get(key, 0)
            event = {"key": key, "text": text, "windowsVirtualKeyCode": code}
            self.call("Input.dispatchKeyEvent", type="keyDown", **event)
            self.call("Input.dispatchKeyEvent", type="keyUp", key=key, windowsVirtualKeyCode=code)

    def screenshot(self, path, clip=None):
        """Write a PNG of the whole page, or of a part: x, y, width, height."""
        x, y, width, height = clip or self.evaluate("[0, 0, innerWidth, document.documentElement.scrollHeight]")
        area = {"x": x, "y": y, "width": width, "height": height, "scale": 1}
        data = self.call("Page.captureScreenshot", clip=area, captureBeyondViewport=True)["data"]
        path.write_bytes(base64.b64decode(data))

    def call(self, method, **parameters):
        self._number += 1
        number = self._number
        message = {"id": number, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._out, json.dumps(message).encode() + b"\0")
        answer = self._wait(lambda: self._answers.pop(number, None))
        if "error" in answer:
            raise RuntimeError(f"{method}: {answer['error']}")
        return answer["result"]

    def _wait(self, outcome):
        deadline = time.monotonic() + PATIENCE
        while not (found := outcome()):
            if not select.select([self._in], [], [], max(0, deadline - time.monotonic()))[0]:
                raise TimeoutError(f"Chromium did not answer within {PATIENCE} s")
            chunk = os.read(self._in, 1 << 20)
            if not chunk:
                raise OSError(f"Chromium ended with status {self._process.wait(10)}")
            *complete, self._buffer = (self._buffer + chunk).split(b"\0")
            for message in map(json.loads, complete):
                self._take(message)
        return found

    def _take(self, message):
        method, parameters = message.get("method"), message.get("params", {})
        if "id" in message:
            self._answers[message["id"]] = message
        elif method == "Page.loadEventFired":
            self._loaded = True
        elif method in ("Runtime.consoleAPICalled", "Runtime.exceptionThrown", "Log.entryAdded"):
            self.messages.append(parameters)
        elif method == "Network.requestWillBeSent":
            self.requests.append(parameters["request"]["url"])
