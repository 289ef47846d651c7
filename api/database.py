"""Opening the database that a command works on."""

from __future__ import annotations

from tuner.store.engine import is_embedded, open_engine
from tuner.store.migrate import check_revision, upgrade
from tuner.store.ownership import Ownership
from tuner.store.repository import Repository


def open_repository(url: str) -> Repository:
    """The store of users, at the right revision. An embedded database is made or upgraded on the way.

    Raises:
        InvalidInput: The URL names no supported database.
        DatabaseUnavailable: It cannot be opened.
        WrongRevision: A server's schema is not the one this version needs.
    """
    return Repository(_ready(url))


def open_ownership(url: str) -> Ownership:
    """The store of dispatchers; as :func:`open_repository`."""
    return Ownership(_ready(url))


def _ready(url: str):  # type: ignore[no-untyped-def]
    if is_embedded(url):
        upgrade(url)
    engine = open_engine(url)
    check_revision(engine)
    return engine
