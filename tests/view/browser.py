"""A headless Chromium, driven over its DevTools protocol."""

from __future__ import annotations

import asyncio
import base64
import json
import re
import shutil
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import aiohttp

CHROMIUM = next(
    (path for name in ("chromium", "chromium-browser", "google-chrome") if (path := shutil.which(name))), ""
)
OPTIONS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--remote-debugging-port=0",
)


class Browser:
    """One page: scripts are evaluated in it, keys are pressed, its window is sized."""

    def __init__(self, address: str) -> None:
        self.loop = asyncio.new_event_loop()
        threading.Thread(target=self.loop.run_forever, daemon=True).start()
        self.number = 0
        self.call(self._connect(address))

    def call(self, task: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(task, self.loop).result(60)

    async def _connect(self, address: str) -> None:
        self.session = aiohttp.ClientSession()
        base = re.sub("^ws", "http", address).split("/devtools")[0]
        async with self.session.get(f"{base}/json") as answer:
            page = next(one for one in await answer.json() if one["type"] == "page")
        self.socket = await self.session.ws_connect(page["webSocketDebuggerUrl"], max_msg_size=1 << 26)

    async def _send(self, method: str, given: dict[str, Any]) -> dict[str, Any]:
        self.number += 1
        number = self.number
        await self.socket.send_json({"id": number, "method": method, "params": given})
        while True:
            said = json.loads((await self.socket.receive()).data)
            if said.get("id") == number:
                assert "error" not in said, said
                return dict(said["result"])

    def send(self, method: str, **given: Any) -> dict[str, Any]:
        return dict(self.call(self._send(method, given)))

    def value(self, script: str) -> Any:
        found = self.send("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in found, found["exceptionDetails"]
        return found["result"].get("value")

    def until(self, script: str, seconds: float = 30.0) -> float:
        """Wait until a script is true; how long that took."""
        start = time.monotonic()
        while not self.value(f"Boolean({script})"):
            assert time.monotonic() - start < seconds, (script, self.value("document.body.innerText"))
            time.sleep(0.02)
        return time.monotonic() - start

    def press(self, key: str) -> None:
        for kind in ("keyDown", "keyUp"):
            more = {"text": "\r"} if key == "Enter" and kind == "keyDown" else {}
            self.send(
                "Input.dispatchKeyEvent",
                type=kind,
                key=key,
                code=key,
                **more,
                windowsVirtualKeyCode={"Enter": 13, "ArrowDown": 40, "ArrowUp": 38, "Tab": 9}[key],
            )

    def window(self, width: int, height: int) -> None:
        self.send(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=False,
        )

    def picture(self) -> bytes:
        return base64.b64decode(self.send("Page.captureScreenshot", format="png")["data"])


@contextmanager
def browser(folder: Path) -> Iterator[Browser]:
    words = [CHROMIUM, *OPTIONS, f"--user-data-dir={folder}", "about:blank"]
    with subprocess.Popen(words, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True) as process:
        assert process.stderr is not None
        try:
            for line in process.stderr:
                if line.startswith("DevTools listening on "):
                    found = Browser(line.split()[-1])
                    yield found
                    found.call(found.session.close())
                    break
        finally:
            process.terminate()
