from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from databases import Clock, FreshDatabase
from sqlalchemy import Engine, NullPool, create_engine, make_url, text

from tuner.store.engine import open_engine
from tuner.store.migrate import upgrade
from tuner.store.ownership import Ownership
from tuner.store.repository import Repository
from tuner.store.tables import Base


@pytest.fixture(scope="session")
def emptied(postgres_url: FreshDatabase) -> Iterator[Callable[[], str]]:
    """Empties one PostgreSQL database, which is quicker than making another; its URL."""
    url = postgres_url()
    engine = create_engine(make_url(url).set(drivername="postgresql+psycopg"), poolclass=NullPool)
    tables = ", ".join(table.name for table in Base.metadata.sorted_tables)

    def empty() -> str:
        with engine.begin() as connection:
            # A test that left a transaction open fails the next one, instead of stopping all of them.
            connection.execute(text("SET LOCAL lock_timeout = '5s'"))
            connection.execute(text(f"TRUNCATE {tables} RESTART IDENTITY"))
        return url

    yield empty
    engine.dispose()


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """An empty database at head, of either dialect."""
    if request.param == "postgresql":
        empty: Callable[[], str] = request.getfixturevalue("emptied")
        return empty()
    made = f"sqlite:///{tmp_path / 'paretune.db'}"
    upgrade(made)
    return made


@pytest.fixture
def engine(url: str) -> Iterator[Engine]:
    made = open_engine(url)
    yield made
    made.dispose()


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def repository(engine: Engine, clock: Clock) -> Repository:
    return Repository(engine, clock)


@pytest.fixture
def ownership(engine: Engine, clock: Clock) -> Ownership:
    return Ownership(engine, clock)
