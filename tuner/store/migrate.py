"""The schema's revisions: moving a database between them, and refusing one at another."""

from __future__ import annotations

from collections.abc import Callable
from importlib import resources

from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import BigInteger, Connection, Engine, func, literal, select

from tuner.errors import DatabaseUnavailable, WrongRevision
from tuner.store.engine import answering, make_folder, open_engine
from tuner.store.faults import shown

# Alembic's own default name is used by others, Optuna among them, who would take our revision for theirs.
VERSION_TABLE = "paretune_alembic_version"
# Any number will do, as long as no other application on the same server picks it.
_LOCK = 0x70617265_6D696772


def upgrade(url: str, revision: str = "head") -> None:
    """Make the database where it is a file, and bring it to a revision; any number of processes may do so at once.

    Raises:
        InvalidInput: The URL names no supported database.
        DatabaseUnavailable: It cannot be reached or written; nothing was changed.
        WrongRevision: It is at a revision that this version does not know.
    """
    make_folder(url)
    engine = open_engine(url)
    try:
        # One that is there already is left alone: it may be read-only, or another process may be writing.
        if current_revision(engine) != head_revision() or revision != "head":
            _run(engine, command.upgrade, revision)
    finally:
        engine.dispose()


def downgrade(url: str, revision: str) -> None:
    """Take the database back to an earlier revision.

    Raises:
        InvalidInput: The URL names no supported database.
        DatabaseUnavailable: It cannot be reached or written; nothing was changed.
        WrongRevision: It is at a revision that this version does not know.
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
    with answering(engine), engine.connect() as connection:
        return _revision(connection)


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
        raise WrongRevision(_refusal(engine, current))
    return head


def _revision(connection: Connection) -> str | None:
    return MigrationContext.configure(connection, opts={"version_table": VERSION_TABLE}).get_current_revision()


def _refusal(engine: Engine, current: str | None) -> str:
    """Why the database cannot be used as it is, and what to do about it."""
    name, head = shown(engine.url), head_revision()
    if current is None:
        return f"the database {name} has no tables yet and this version needs revision {head}; run `paretune migrate`"
    refusal = f"the database {name} is at revision {current} and this version needs {head}"
    if _is_known(current):
        return f"{refusal}; run `paretune migrate`"
    return f"{refusal}; `paretune migrate` of this version cannot get there: use the newer paretune that made it"


def _is_known(revision: str | None) -> bool:
    known = {script.revision for script in ScriptDirectory.from_config(_config()).walk_revisions()}
    return revision is None or revision in known


def _config() -> Config:
    config = Config()
    config.set_main_option("script_location", str(resources.files("migrations")).replace("%", "%%"))
    config.set_main_option("path_separator", "os")
    return config


def _run(engine: Engine, step: Callable[[Config, str], None], revision: str) -> None:
    """Take a step in one transaction, alone: whoever comes second waits, and finds it taken."""
    config = _config()
    with answering(engine), engine.connect().execution_options(paretune_writes=True) as connection:
        is_sqlite = connection.dialect.name == "sqlite"
        if is_sqlite:
            _let_tables_be_rebuilt(connection)
        with connection.begin():
            # SQLite has begun as the one writer already.
            if not is_sqlite:
                connection.execute(select(func.pg_advisory_xact_lock(literal(_LOCK, BigInteger))))
            if not _is_known(current := _revision(connection)):
                raise WrongRevision(_refusal(engine, current))
            config.attributes["connection"] = connection
            step(config, revision)
            if is_sqlite:
                _check_references(connection)


def _let_tables_be_rebuilt(connection: Connection) -> None:
    """Turn SQLite's foreign keys off, until the connection is closed.

    A batch migration drops the old table, and with them on that deletes every row that refers to it
    (sqlite.org/lang_altertable.html, section 7). They cannot be turned off within a transaction, which SQLAlchemy
    would begin for any statement of its own.
    """
    driver = connection.connection.driver_connection
    assert driver is not None
    driver.execute("PRAGMA foreign_keys=OFF")


def _check_references(connection: Connection) -> None:
    """Make up for the foreign keys that were off.

    Raises:
        DatabaseUnavailable: Rows refer to others that are not there.
    """
    dangling = sorted({row.table for row in connection.exec_driver_sql("PRAGMA foreign_key_check")})
    if dangling:
        name = shown(connection.engine.url)
        raise DatabaseUnavailable(
            f"the database {name} cannot be migrated: rows of {', '.join(dangling)} belong to nothing; "
            "nothing was changed"
        )
