"""The dispatcher beside the service: a child process that is started again when it dies."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
import threading

from api.settings import Settings

_GRACE_S = 20.0
_LOOK_S = 0.5
_FIRST_PAUSE_S = 1.0
_LONGEST_PAUSE_S = 60.0
_log = logging.getLogger(__name__)


class Supervisor:
    """Keeps one ``paretune dispatch`` running.

    Args:
        settings: What the dispatcher works on.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._ending = threading.Event()
        self._child = self._start()
        self._watch = threading.Thread(target=self._keep_running, name="supervisor", daemon=True)
        self._watch.start()

    def stop(self) -> None:
        """End the dispatcher, and wait until it has handed its studies back."""
        self._ending.set()
        self._watch.join()
        self._child.send_signal(signal.SIGTERM)
        try:
            self._child.wait(_GRACE_S)
        except subprocess.TimeoutExpired:
            self._child.kill()
            self._child.wait()

    def _start(self) -> subprocess.Popen[bytes]:
        environment = os.environ | {"PARETUNE_DATABASE_URL": self._settings.database_url}
        command = [sys.executable, "-m", "api.cli", "dispatch", "--parent", str(os.getpid())]
        # Its own session: Ctrl-C reaches it through this process, once, and not from the terminal as well.
        return subprocess.Popen(command, env=environment, start_new_session=True)

    def _keep_running(self) -> None:
        pause_s = _FIRST_PAUSE_S
        while not self._ending.wait(_LOOK_S):
            code = self._child.poll()
            if code is None:
                continue
            _log.warning("the dispatcher ended (%s); starting it again in %g s", code, pause_s)
            if self._ending.wait(pause_s):
                return
            # One that cannot start, for want of a cluster, is not tried every second for ever.
            pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)
            self._child = self._start()
