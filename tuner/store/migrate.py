"""The schema's revisions: moving a database between them, and refusing one at another."""

from __future__ import annotations

from importlib import resources

from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Engine
from sqlalchemy.exc import DBAPIError

from tuner.errors import WrongRevision
from tuner.store.engine import make_folder, open_engine, shown, unavailable

# Alembic's own default name is used by others, Optuna among them, who would take our revision for theirs.
VERSION_TABLE = "paretune_alembic_version"


def upgrade(url: str, revision: str = "head") -> None:
    """Make the database where it is a file, and bring it to a revision.

    Raises:
        InvalidInput: The URL names no supported database.
        DatabaseUnavailable: It cannot be reached or written.
    """
    make_folder(url)
    engine = open_engine(url)
    try:
        if current_revision(engine) != head_revision() or revision != "head":
            _run(engine, command.upgrade, revision)
    finally:
        engine.dispose()


def downgrade(url: str, revision: str) -> None:
    """Take the database back to an earlier revision.

    Raises:
        DatabaseUnavailable: It cannot be reached or written.
    """
    engine = open_engine(url)
    try:
        _run(engine, command.downgrade, revision)
    finally:
        engine.dispose()


def current_revision(engine: Engine) -> str | None:
    """The database's revision, ``None`` where it has none.

    Raises:
        DatabaseUnavailable: It cannot be reached.
    """
    try:
        with engine.connect() as connection:
            return MigrationContext.configure(connection, opts={"version_table": VERSION_TABLE}).get_current_revision()
    except DBAPIError as error:
        raise unavailable(engine, error) from None


def head_revision() -> str:
    """The revision that this version needs."""
    head = ScriptDirectory.from_config(_config()).get_current_head()
    assert head is not None
    return head


def check_revision(engine: Engine) -> str:
    """The database's revision, where it is the one that this version needs.

    Raises:
        WrongRevision: It is another.
        DatabaseUnavailable: The database cannot be reached.
    """
    current, head = current_revision(engine), head_revision()
    if current != head:
        has = "has no tables yet" if current is None else f"is at revision {current}"
        raise WrongRevision(
            f"the database {shown(engine.url)} {has} and this version needs {head}; run `paretune migrate`"
        )
    return head


def _config() -> Config:
    config = Config()
    config.set_main_option("script_location", str(resources.files("migrations")).replace("%", "%%"))
    config.set_main_option("path_separator", "os")
    return config


def _run(engine: Engine, step: object, revision: str) -> None:
    config = _config()
    try:
        with engine.connect().execution_options(paretune_writes=True) as connection:
            config.attributes["connection"] = connection
            step(config, revision)  # type: ignore[operator]
    except DBAPIError as error:
        raise unavailable(engine, error) from None
