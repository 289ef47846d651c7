"""How the faults of SQLite and PostgreSQL become our errors."""

from __future__ import annotations

from sqlalchemy import URL, Engine
from sqlalchemy.exc import DBAPIError, OperationalError, ProgrammingError, SQLAlchemyError
from sqlalchemy.exc import TimeoutError as PoolTimeout

from tuner.errors import DatabaseUnavailable, InvalidInput, ParetuneError

_NO_TABLES = "has no tables yet; run `paretune migrate`"
_FOREIGN = "holds tables of another application"
_READ_ONLY = "is read-only; nothing was written"
_BUSY = "is busy: another process is writing; nothing was written"
_FULL = "is full: the disk or its size limit leaves no room; nothing was written"
# SQLite's primary result codes (sqlite.org/rescode.html); extended ones begin with the name of theirs.
_SQLITE = {
    "SQLITE_BUSY": _BUSY,
    "SQLITE_LOCKED": _BUSY,
    "SQLITE_READONLY": _READ_ONLY,
    "SQLITE_FULL": _FULL,
    "SQLITE_NOTADB": "cannot be opened: its file is not a database",
    "SQLITE_CANTOPEN": "cannot be opened: its file or its folder is missing, or may not be written",
    "SQLITE_CORRUPT": "is damaged",
    "SQLITE_IOERR": "cannot be read or written: the disk reports an error",
}
# PostgreSQL's SQLSTATE codes (its manual, appendix A), or their first two characters, which are the class.
_POSTGRES = {
    "25006": _READ_ONLY,
    "40001": _BUSY,
    "40P01": _BUSY,
    "42P01": _NO_TABLES,
    "42P07": _FOREIGN,
    "53100": _FULL,
    "55P03": _BUSY,
    "57014": _BUSY,
    "42501": "refuses: {cause}",
    "08": "cannot be reached: {cause}",
    "28": "cannot be reached: {cause}",
    "3D": "cannot be reached: {cause}",
    "53": "is overloaded: {cause}",
    "57": "cannot be reached: {cause}",
    "58": "reports a fault of its machine: {cause}",
}
_SECRETS = ("password", "passfile", "sslpassword")


def shown(url: URL) -> str:
    """A URL as it may be shown: without its password."""
    safe = url.difference_update_query(_SECRETS)
    return safe.render_as_string(hide_password=True).replace("+pysqlite:", ":", 1).replace("+psycopg:", ":", 1)


def unavailable(engine: Engine, error: SQLAlchemyError) -> SQLAlchemyError | ParetuneError:
    """Our error for a database's refusal: one sentence that says which; a bug of ours stays what it is."""
    if isinstance(error, PoolTimeout):
        return DatabaseUnavailable(f"the database {shown(engine.url)} is busy: every connection to it is in use")
    if not isinstance(error, DBAPIError):
        return error
    cause = (str(error.orig).strip().splitlines() or [type(error.orig).__name__])[0]
    if _is_refused_option(error):
        return InvalidInput.of("PARETUNE_DATABASE_URL", "(not shown)", cause)
    sentence = _sentence(error, cause)
    if sentence is None:
        return error
    return DatabaseUnavailable(f"the database {shown(engine.url)} {sentence.format(cause=cause)}")


def sqlstate(error: SQLAlchemyError) -> str | None:
    """PostgreSQL's code for an error, ``None`` where there is none."""
    code = getattr(getattr(error, "orig", None), "sqlstate", None)
    return code if isinstance(code, str) else None


def _sentence(error: DBAPIError, cause: str) -> str | None:
    name = getattr(error.orig, "sqlite_errorname", None)
    if name is not None:
        if "no such table" in cause:
            return _NO_TABLES
        if cause.startswith("table ") and cause.endswith("already exists"):
            return _FOREIGN
        return next((known for sign, known in _SQLITE.items() if name.startswith(sign)), None)
    code = sqlstate(error)
    if code is not None:
        return _POSTGRES.get(code) or _POSTGRES.get(code[:2])
    # Without a code it is the driver that speaks: it got no connection, or lost the one it had.
    lost = isinstance(error, OperationalError) or error.connection_invalidated
    return "cannot be reached: {cause}" if lost else None


def _is_refused_option(error: DBAPIError) -> bool:
    """Whether PostgreSQL's driver refused an option of the URL before it sent anything."""
    return isinstance(error, ProgrammingError) and error.statement is None and sqlstate(error) is None
