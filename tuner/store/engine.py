"""Engines: how SQLite and PostgreSQL are opened, and how their faults become our errors."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from sqlalchemy import URL, Connection, Engine, create_engine, event, make_url
from sqlalchemy.exc import ArgumentError, DBAPIError, IntegrityError, OperationalError, SQLAlchemyError
from sqlalchemy.orm import Session

from tuner.errors import DatabaseUnavailable, InvalidInput

BUSY_TIMEOUT_S = 5.0
_CONNECT_TIMEOUT_S = 5
_TRIES = 5
_VALID = "must be sqlite:///PATH or postgresql://USER@HOST/NAME"
# PostgreSQL's codes for a transaction that is to be run again: serialization failure, deadlock.
_RETRY_CODES = frozenset({"40001", "40P01"})
Answer = TypeVar("Answer")


def parse_url(url: str) -> URL:
    """The URL with the driver that we use for its dialect.

    Raises:
        InvalidInput: It is no URL, or of another dialect. A password in it is not repeated.
    """
    try:
        parsed = make_url(url)
    except (ArgumentError, ValueError):
        raise InvalidInput.of("PARETUNE_DATABASE_URL", "(not shown)", _VALID) from None
    dialect = parsed.get_backend_name()
    if dialect == "sqlite":
        return parsed.set(drivername="sqlite+pysqlite")
    if dialect in ("postgresql", "postgres"):
        return parsed.set(drivername="postgresql+psycopg")
    raise InvalidInput.of("PARETUNE_DATABASE_URL", dialect, _VALID)


def is_embedded(url: str) -> bool:
    """Whether the database is a file of our own, which we may make and migrate unasked."""
    return parse_url(url).get_backend_name() == "sqlite"


def make_folder(url: str) -> None:
    """Make the folder of an SQLite file.

    Raises:
        DatabaseUnavailable: It cannot be made.
    """
    parsed = parse_url(url)
    if parsed.get_backend_name() != "sqlite" or not parsed.database or parsed.database.startswith((":", "file:")):
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
            pool_pre_ping=True,
            isolation_level="READ COMMITTED",
            connect_args={"connect_timeout": _CONNECT_TIMEOUT_S},
        )
    except ModuleNotFoundError:
        raise InvalidInput.of(
            "PARETUNE_DATABASE_URL", "postgresql", "needs a driver: install paretune[postgres]"
        ) from None


def _open_sqlite(url: URL, busy_timeout_s: float) -> Engine:
    engine = create_engine(url, connect_args={"timeout": busy_timeout_s, "check_same_thread": False})

    @event.listens_for(engine, "connect")
    def _configure(connection: Any, _: object) -> None:
        # The driver must not open transactions by itself: we begin them, and say which kind.
        connection.isolation_level = None
        for pragma in ("journal_mode=WAL", "foreign_keys=ON", "synchronous=NORMAL"):
            connection.execute(f"PRAGMA {pragma}")

    @event.listens_for(engine, "begin")
    def _begin(connection: Connection) -> None:
        # A read that becomes a write cannot wait for another writer; one that says so at once can.
        immediate = connection.get_execution_options().get("paretune_writes", False)
        connection.exec_driver_sql("BEGIN IMMEDIATE" if immediate else "BEGIN")

    return engine


def shown(url: URL) -> str:
    """A URL as it may be shown: without its password."""
    return url.render_as_string(hide_password=True).replace("+pysqlite", "").replace("+psycopg", "")


@contextmanager
def reading(engine: Engine) -> Iterator[Session]:
    """A session for reading.

    Raises:
        DatabaseUnavailable: The database does not answer.
    """
    with _translated(engine), engine.connect() as connection, Session(connection) as session:
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
            return _write_once(engine, work)
        except DBAPIError as error:
            if attempt == _TRIES - 1 or getattr(error.orig, "sqlstate", None) not in _RETRY_CODES:
                raise unavailable(engine, error) from None
            time.sleep(random.uniform(0, 0.05 * 2**attempt))
    raise AssertionError("unreachable")


def _write_once(engine: Engine, work: Callable[[Session], Answer]) -> Answer:
    try:
        with engine.connect() as plain:
            connection = plain.execution_options(paretune_writes=True)
            with Session(connection, expire_on_commit=False) as session, session.begin():
                return work(session)
    except IntegrityError:
        raise
    except DBAPIError as error:
        if getattr(error.orig, "sqlstate", None) in _RETRY_CODES:
            raise
        raise unavailable(engine, error) from None


@contextmanager
def _translated(engine: Engine) -> Iterator[None]:
    try:
        yield
    except DBAPIError as error:
        raise unavailable(engine, error) from None


def unavailable(engine: Engine, error: SQLAlchemyError) -> Exception:
    """Our error for a database's refusal: one sentence that says which; a bug of ours stays what it is."""
    if not isinstance(error, OperationalError) and not getattr(error, "connection_invalidated", False):
        return error
    cause = str(getattr(error, "orig", error)).strip().splitlines()[0]
    name = shown(engine.url)
    for sign, sentence in (
        ("locked", "is busy: another process is writing"),
        ("readonly", "is read-only"),
        ("read-only", "is read-only"),
        ("full", "is full: the disk or its size limit leaves no room"),
        ("No space left", "is full: the disk leaves no room"),
        ("no such table", "has no tables yet; run `paretune migrate`"),
    ):
        if sign in cause:
            return DatabaseUnavailable(f"the database {name} {sentence}; nothing was written")
    return DatabaseUnavailable(f"the database {name} cannot be reached: {cause}")
