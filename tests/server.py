"""A real ``paretune serve`` in a process of its own."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from types import TracebackType
from typing import Self

_START_S = 60


class Server:
    """Serves for as long as the block lasts.

    Args:
        database_url: What it serves.
        studies: Study files that it is given.
        port: What it listens on; any free one by default.
        dispatcher: Whether it also dispatches.
    """

    def __init__(self, database_url: str, *studies: str, port: str = "0", dispatcher: bool = False) -> None:
        flag = "--dispatcher" if dispatcher else "--no-dispatcher"
        # A file, not a pipe: nobody reads while the server works, and a full pipe would stop it.
        self.log = tempfile.NamedTemporaryFile("w+", suffix=".log")  # noqa: SIM115
        self.process = subprocess.Popen(
            [sys.executable, "-m", "api.cli", "serve", "--port", port, flag, *studies],
            env=os.environ | {"PARETUNE_DATABASE_URL": database_url},
            stdout=subprocess.DEVNULL,
            stderr=self.log,
        )
        self.url = ""

    def __enter__(self) -> Self:
        deadline_s = time.monotonic() + _START_S
        while time.monotonic() < deadline_s:
            found = re.search(r"page: (http://\S+)/", self.printed())
            if found:
                self.url = found[1]
                self._wait_until_it_listens(deadline_s)
                return self
            if self.process.poll() is not None:
                break
            time.sleep(0.05)
        self.process.kill()
        raise AssertionError(f"the server did not start: {self.printed()}")

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
        self.log.close()

    def printed(self) -> str:
        """What it has printed so far."""
        with open(self.log.name) as log:
            return log.read()

    def stop(self) -> int:
        """Ask it to end, and wait; its exit code."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGINT)
        return self.process.wait(timeout=60)

    def _wait_until_it_listens(self, deadline_s: float) -> None:
        import httpx2

        while time.monotonic() < deadline_s:
            try:
                httpx2.get(f"{self.url}/healthz", timeout=2)
            except httpx2.TransportError:
                time.sleep(0.05)
            else:
                return
