"""Engines: how SQLite and PostgreSQL are opened, read and written."""

from __future__ import annotations

import json
import random
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from sqlalchemy import URL, Connection, Engine, create_engine, event, make_url
from sqlalchemy.exc import ArgumentError, DBAPIError
from sqlalchemy.exc import TimeoutError as PoolTimeout
from sqlalchemy.orm import Session

from tuner.errors import DatabaseUnavailable, InvalidInput
from tuner.store.faults import shown, sqlstate, unavailable

BUSY_TIMEOUT_S = 5.0
_CONNECT_TIMEOUT_S = 5
_TRIES = 5
_VALID = "must be sqlite:///PATH or postgresql://USER@HOST/NAME"
# PostgreSQL's codes for a transaction that is to be run again: serialization failure, deadlock.
_RETRY_CODES = frozenset({"40001", "40P01"})
# What a URL may ask of SQLite (sqlite.org/uri.html); the driver's own settings are ours to choose.
_SQLITE_OPTIONS = frozenset({"uri", "mode", "immutable", "vfs"})
# NaN and infinity are no JSON: PostgreSQL refuses what SQLite would keep, and no browser could read it.
_dump_json = partial(json.dumps, allow_nan=False)
Answer = TypeVar("Answer")


def parse_url(url: str) -> URL:
    """The URL with the driver that we use for its dialect.

    Raises:
        InvalidInput: It is no URL, of another dialect, or names no file. A password in it is not repeated.
    """
    try:
        parsed = make_url(url)
    except (ArgumentError, ValueError):
        raise InvalidInput.of("PARETUNE_DATABASE_URL", "(not shown)", _VALID) from None
    dialect = parsed.get_backend_name()
    if dialect == "sqlite":
        _check_sqlite(parsed)
        return parsed.set(drivername="sqlite+pysqlite")
    if dialect in ("postgresql", "postgres"):
        return parsed.set(drivername="postgresql+psycopg")
    raise InvalidInput.of("PARETUNE_DATABASE_URL", dialect, _VALID)


def _check_sqlite(url: URL) -> None:
    path = url.database or ""
    if path in ("", ":memory:", "file::memory:") or "\0" in path or url.query.get("mode") == "memory":
        # Every connection would have a database of its own.
        raise InvalidInput.of("PARETUNE_DATABASE_URL", shown(url), "must name a file: sqlite:///PATH")
    unknown = sorted(set(url.query) - _SQLITE_OPTIONS)
    if unknown or (url.query and "uri" not in url.query):
        raise InvalidInput.of(
            "PARETUNE_DATABASE_URL",
            shown(url),
            f"can have the options {', '.join(sorted(_SQLITE_OPTIONS))}, and only with uri=true",
        )


def is_embedded(url: str) -> bool:
    """Whether the database is a file of our own, which we may make and migrate unasked."""
    return parse_url(url).get_backend_name() == "sqlite"


def make_folder(url: str) -> None:
    """Make the folder of an SQLite file.

    Raises:
        DatabaseUnavailable: It cannot be made.
    """
    parsed = parse_url(url)
    if parsed.get_backend_name() != "sqlite" or not parsed.database or parsed.database.startswith("file:"):
        return
    try:
        Path(parsed.database).parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise DatabaseUnavailable(
            f"the database {shown(parsed)} cannot be made: its folder is not writable ({error.strerror})"
        ) from None


def open_engine(url: str, busy_timeout_s: float = BUSY_TIMEOUT_S) -> Engine:
    """An engine with the settings that each dialect needs; nothing is connected yet.

    Args:
        url: The database.
        busy_timeout_s: How long SQLite waits for another writer.

    Raises:
        InvalidInput: The URL names no supported database.
    """
    parsed = parse_url(url)
    if parsed.get_backend_name() == "sqlite":
        return _open_sqlite(parsed, busy_timeout_s)
    try:
        return create_engine(
            parsed,
            json_serializer=_dump_json,
            pool_pre_ping=True,
            isolation_level="READ COMMITTED",
            connect_args={"connect_timeout": _CONNECT_TIMEOUT_S},
        )
    except ModuleNotFoundError:
        raise InvalidInput.of(
            "PARETUNE_DATABASE_URL", "postgresql", "needs a driver: install paretune[postgres]"
        ) from None


def _open_sqlite(url: URL, busy_timeout_s: float) -> Engine:
    engine = create_engine(
        url,
        json_serializer=_dump_json,
        connect_args={"timeout": busy_timeout_s, "check_same_thread": False},
    )

    @event.listens_for(engine, "connect")
    def _configure(connection: Any, _: object) -> None:
        # The driver must not open transactions by itself: we begin them, and say which kind.
        connection.isolation_level = None
        _use_wal(connection, busy_timeout_s)
        for pragma in ("foreign_keys=ON", "synchronous=NORMAL"):
            connection.execute(f"PRAGMA {pragma}")

    @event.listens_for(engine, "begin")
    def _begin(connection: Connection) -> None:
        # A read that becomes a write cannot wait for another writer; one that says so at once can.
        immediate = connection.get_execution_options().get("paretune_writes", False)
        connection.exec_driver_sql("BEGIN IMMEDIATE" if immediate else "BEGIN")

    return engine


def _use_wal(connection: sqlite3.Connection, busy_timeout_s: float) -> None:
    """Let readers go on beside a writer; the file remembers it.

    SQLite does not wait for others while it changes the mode, so two processes that open a new file at once would fail.
    """
    deadline_s = time.monotonic() + busy_timeout_s
    while True:
        try:
            connection.execute("PRAGMA journal_mode=WAL")
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode != sqlite3.SQLITE_BUSY or time.monotonic() > deadline_s:
                raise
            time.sleep(random.uniform(0, 0.02))
        else:
            return


@contextmanager
def reading(engine: Engine) -> Iterator[Session]:
    """A session for reading: everything read in it is of one moment.

    Raises:
        DatabaseUnavailable: The database does not answer.
    """
    # SQLite's transactions see one moment anyway; PostgreSQL's do so at this level, which never fails for readers.
    options = {"isolation_level": "REPEATABLE READ"} if engine.dialect.name == "postgresql" else {}
    with answering(engine), engine.connect() as connection, Session(connection.execution_options(**options)) as session:
        yield session


def write(engine: Engine, work: Callable[[Session], Answer]) -> Answer:
    """Do work in one transaction; where the database asks for it, from the start again.

    Args:
        engine: The database.
        work: What to do; it may be called again after a rollback.

    Raises:
        DatabaseUnavailable: The database refuses; nothing was written.
    """
    for attempt in range(_TRIES):
        try:
            with engine.connect() as plain:
                connection = plain.execution_options(paretune_writes=True)
                with Session(connection, expire_on_commit=False) as session, session.begin():
                    return work(session)
        except (DBAPIError, PoolTimeout) as error:
            if attempt == _TRIES - 1 or sqlstate(error) not in _RETRY_CODES:
                raise unavailable(engine, error) from None
            time.sleep(random.uniform(0, 0.05 * 2**attempt))
    raise AssertionError("unreachable")


@contextmanager
def answering(engine: Engine) -> Iterator[None]:
    """Turn the refusals of a database within the block into our errors.

    Raises:
        DatabaseUnavailable: The database refuses.
    """
    try:
        yield
    except (DBAPIError, PoolTimeout) as error:
        raise unavailable(engine, error) from None
