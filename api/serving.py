"""``paretune serve``: the service, with a dispatcher as its child process."""

from __future__ import annotations

import signal
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

import uvicorn
from rich.console import Console

from api.app import create_app
from api.settings import Settings
from api.supervisor import Supervisor
from tuner.errors import InvalidInput
from tuner.store.repository import Repository

_LOOPBACK = ("127.0.0.1", "::1", "localhost")


class _Server(uvicorn.Server):
    """Tells open event streams to end before uvicorn waits for them, and treats a signal as an orderly end."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Handle signals without raising them again at the end: the dispatcher must be stopped after the server."""
        before = {number: signal.signal(number, self.handle_exit) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        closing = getattr(self.config.loaded_app.app.state, "closing", None) if self.config.loaded else None
        if closing is not None:
            closing.set()
        super().handle_exit(sig, frame)


def serve(repository: Repository, settings: Settings, notes: Console, *, with_dispatcher: bool) -> None:
    """Serve until interrupted.

    Args:
        repository: The store, at the right revision.
        settings: What to listen on, and what the dispatcher works on.
        notes: Console for the page's address.
        with_dispatcher: Whether to start ``paretune dispatch`` beside it.

    Raises:
        InvalidInput: The address cannot be listened on.
    """
    listener = _listen(settings)
    host, port = listener.getsockname()[:2]
    if settings.host not in _LOOPBACK:
        notes.print(f"warning: listening on {host} without access control; anyone who reaches it can steer studies")
    supervisor = Supervisor(settings) if with_dispatcher else None
    notes.print(f"page: http://{host}:{port}/")
    try:
        config = uvicorn.Config(create_app(repository), log_level="warning", timeout_graceful_shutdown=5)
        _Server(config).run(sockets=[listener])
    finally:
        if supervisor is not None:
            supervisor.stop()


def _listen(settings: Settings) -> socket.socket:
    try:
        family, _, _, _, address = socket.getaddrinfo(settings.host, settings.port, type=socket.SOCK_STREAM)[0]
    except OSError as error:
        raise InvalidInput.of("PARETUNE_HOST", settings.host, f"must be an address to listen on ({error})") from None
    listener = socket.socket(family)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind(address)
    except OSError as error:
        listener.close()
        raise InvalidInput.of(
            "PARETUNE_PORT", settings.port, f"must be free to listen on at {settings.host} ({error.strerror})"
        ) from None
    return listener
