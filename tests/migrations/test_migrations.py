from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from builders import configuration, measurement
from databases import FreshDatabase, dump, new, running
from sqlalchemy import Engine, inspect, text
from sqlalchemy.exc import IntegrityError

import migrations
from tuner.errors import DatabaseUnavailable, WrongRevision
from tuner.states import TrialEvent
from tuner.store.engine import open_engine
from tuner.store.migrate import (
    VERSION_TABLE,
    check_revision,
    current_revision,
    downgrade,
    head_revision,
    upgrade,
)
from tuner.store.ownership import Ownership
from tuner.store.records import Completed
from tuner.store.repository import Repository
from tuner.store.tables import Base

TABLES = {"study", "trial", "attempt", "measurement", "event"}


@pytest.fixture(params=["sqlite", "postgresql"])
def dialect(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def url(dialect: str, request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """An empty database of either dialect."""
    if dialect == "sqlite":
        return f"sqlite:///{tmp_path / 'deep' / 'er' / 'paretune.db'}"
    make: FreshDatabase = request.getfixturevalue("postgres_url")
    return make(migrated=False)


@pytest.fixture
def engine(url: str) -> Iterator[Engine]:
    """The same database; nothing is connected before it is used."""
    made = open_engine(url)
    yield made
    made.dispose()


def tables(engine: Engine) -> set[str]:
    return set(inspect(engine).get_table_names())


def stamp(engine: Engine, revision: str) -> None:
    with engine.begin() as connection:
        connection.execute(text(f"UPDATE {VERSION_TABLE} SET version_num = '{revision}'"))


def described(engine: Engine) -> dict[str, Any]:
    """Every table with its columns, keys, checks and indexes, in an order of its own."""
    inspector = inspect(engine)
    return {
        name: {
            "columns": sorted((c["name"], str(c["type"]), c["nullable"], c["default"]) for c in inspector.get_columns(name)),
            "key": inspector.get_pk_constraint(name),
            "unique": sorted((c["name"], c["column_names"]) for c in inspector.get_unique_constraints(name)),
            "checks": sorted((c["name"], c["sqltext"]) for c in inspector.get_check_constraints(name)),
            "foreign": sorted(map(str, inspector.get_foreign_keys(name))),
            "indexes": sorted((i["name"], i["column_names"], i["unique"]) for i in inspector.get_indexes(name)),
        }
        for name in sorted(TABLES)
    }  # fmt: skip


def test_there_is_one_line_of_revisions_from_base_to_head() -> None:
    config = Config()
    config.set_main_option("script_location", str(Path(migrations.__file__).parent))
    config.set_main_option("path_separator", "os")
    script = ScriptDirectory.from_config(config)
    assert script.get_heads() == [head_revision()]
    assert len(script.get_bases()) == 1


def test_an_empty_database_goes_up_to_head_down_to_base_and_up_again(url: str, engine: Engine) -> None:
    upgrade(url)
    assert tables(engine) == TABLES | {VERSION_TABLE}
    assert check_revision(engine) == current_revision(engine) == head_revision()
    first = described(engine)
    Repository(engine).create_study(new())
    upgrade(url)
    assert Repository(engine).study("small").revision == 1
    downgrade(url, "base")
    assert tables(engine) == {VERSION_TABLE}
    assert current_revision(engine) is None
    upgrade(url)
    assert described(engine) == first
    assert Repository(engine).studies() == ([], None)


def test_every_revision_can_be_taken_back_one_by_one(url: str, engine: Engine) -> None:
    upgrade(url, "+1")
    assert current_revision(engine) is not None
    upgrade(url)
    while current_revision(engine) is not None:
        downgrade(url, "-1")
    assert tables(engine) == {VERSION_TABLE}


def test_the_models_are_what_the_migrations_make(
    url: str, engine: Engine, dialect: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    upgrade(url)
    with engine.connect() as connection:
        context = MigrationContext.configure(connection, opts={"version_table": VERSION_TABLE, "compare_type": True})
        assert compare_metadata(context, Base.metadata) == []
    if dialect == "sqlite":
        modelled = open_engine(f"sqlite:///{tmp_path / 'modelled.db'}")
    else:
        modelled = open_engine(request.getfixturevalue("postgres_url")(migrated=False))
    Base.metadata.create_all(modelled)
    # Alembic does not compare checks and cascades.
    migrated, made = described(engine), described(modelled)
    modelled.dispose()
    if dialect == "sqlite":
        migrated, made = _alike(migrated), _alike(made)
    assert migrated == made


def _alike(tables: dict[str, Any]) -> dict[str, Any]:
    """SQLite repeats a type as it was spelled; FLOAT and DOUBLE are the same to it."""
    for table in tables.values():
        table["columns"] = [(name, kind.replace("FLOAT", "DOUBLE"), *rest) for name, kind, *rest in table["columns"]]
    return tables


REBUILD = """
    for table in ("study", "trial", "attempt"):
        with op.batch_alter_table(table, recreate="auto") as batch:
            batch.alter_column("state", existing_type=sa.String(20), type_=sa.String(30))
"""


@pytest.fixture
def next_revision(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[[str], None]:
    """Adds a revision after head, which upgrades by these lines."""

    def add(lines: str) -> None:
        scripts = tmp_path / "migrations"
        head = head_revision()
        shutil.copytree(Path(migrations.__file__).parent, scripts, ignore=shutil.ignore_patterns("__pycache__"))
        (scripts / "versions" / "next.py").write_text(
            f"import sqlalchemy as sa\nfrom alembic import op\nrevision = 'next'\ndown_revision = {head!r}\n"
            f"def upgrade():\n{lines}\n"
        )
        monkeypatch.setattr("tuner.store.migrate.resources.files", lambda _: scripts)

    return add


def measured(engine: Engine) -> str:
    """A study with a measured trial; its id."""
    ownership = Ownership(engine)
    lease = running(Repository(engine), ownership)
    ownership.add_trial(lease, configuration(), "baseline", {})
    attempt = ownership.start_attempt(lease, 0, "launch", True)
    ownership.finish_attempt(lease, attempt.id, Completed(measurement(), 1.0), 4.0, TrialEvent.complete)
    return lease.study_id


def test_a_migration_that_rebuilds_a_table_keeps_the_rows_that_hang_on_it(
    url: str, engine: Engine, next_revision: Callable[[str], None]
) -> None:
    """SQLite rebuilds a table by dropping it, and dropping one with foreign keys on deletes what refers to it."""
    upgrade(url)
    measured(engine)
    before = dump(engine)
    assert len(before["measurement"]) == 1
    next_revision(REBUILD)
    upgrade(url)
    assert current_revision(engine) == "next"
    assert dump(engine) == before
    with pytest.raises(IntegrityError), engine.begin() as connection:
        connection.execute(text("UPDATE trial SET study_id = 'nobody'"))


def test_a_migration_that_would_leave_rows_hanging_on_nothing_is_refused_and_taken_back(
    tmp_path: Path, next_revision: Callable[[str], None]
) -> None:
    url = f"sqlite:///{tmp_path / 'paretune.db'}"
    upgrade(url)
    engine = open_engine(url)
    measured(engine)
    before, head = dump(engine), head_revision()
    next_revision("    op.execute('DELETE FROM trial')")
    with pytest.raises(
        DatabaseUnavailable, match=r"rows of attempt belong to nothing.*; nothing was changed"
    ) as caught:
        upgrade(url)
    assert "\n" not in str(caught.value)
    assert (current_revision(engine), dump(engine)) == (head, before)
    engine.dispose()


def test_a_database_without_tables_is_refused_with_the_command_that_makes_them(engine: Engine, url: str) -> None:
    upgrade(url)
    downgrade(url, "base")
    with pytest.raises(WrongRevision, match=f"no tables yet.*needs revision {head_revision()}.*`paretune migrate`"):
        check_revision(engine)


def test_a_newer_database_is_refused_with_both_revisions_and_not_touched(url: str, engine: Engine) -> None:
    upgrade(url)
    Repository(engine).create_study(new())
    stamp(engine, "9999")
    before = dump(engine)
    for refused in (
        lambda: check_revision(engine),
        lambda: upgrade(url),
        lambda: downgrade(url, "base"),
    ):
        with pytest.raises(WrongRevision) as caught:
            refused()
        sentence = str(caught.value)
        assert f"is at revision 9999 and this version needs {head_revision()}" in sentence
        assert "`paretune migrate`" in sentence
        assert "\n" not in sentence
        assert dump(engine) == before
        assert current_revision(engine) == "9999"


def test_an_older_database_is_refused_with_both_revisions_and_the_command(
    url: str, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    upgrade(url)
    older = head_revision()
    monkeypatch.setattr("tuner.store.migrate.head_revision", lambda: "9999")
    with pytest.raises(WrongRevision, match=f"is at revision {older} and this version needs 9999; run `paretune migr"):
        check_revision(engine)


def test_tables_of_others_are_left_alone_and_a_migration_that_fails_leaves_nothing(url: str, engine: Engine) -> None:
    downgrade_to_nothing(url)
    with engine.begin() as connection:
        # Optuna's storage keeps its revision under Alembic's default name.
        connection.execute(text("CREATE TABLE alembic_version (version_num VARCHAR(32) NOT NULL)"))
        connection.execute(text("INSERT INTO alembic_version VALUES ('v3.2.0.a')"))
        connection.execute(text("CREATE TABLE attempt (theirs INTEGER)"))
    with pytest.raises(DatabaseUnavailable, match="holds tables of another application"):
        upgrade(url)
    assert tables(engine) == {VERSION_TABLE, "alembic_version", "attempt"}
    assert current_revision(engine) is None
    with engine.begin() as connection:
        connection.execute(text("DROP TABLE attempt"))
    upgrade(url)
    with engine.connect() as connection:
        assert connection.execute(text("SELECT version_num FROM alembic_version")).all() == [("v3.2.0.a",)]


def downgrade_to_nothing(url: str) -> None:
    """The folder and the version table, and no others."""
    upgrade(url)
    downgrade(url, "base")


def test_processes_that_migrate_the_same_empty_database_at_once_all_end_well(
    dialect: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    code = (
        "import sys\nfrom tuner.store.engine import open_engine\nfrom tuner.store.migrate import check_revision, upgrade\n"
        "print('ready', flush=True)\n"
        "for line in sys.stdin:\n"
        "    upgrade(line.strip()); engine = open_engine(line.strip())\n"
        "    print(check_revision(engine), flush=True); engine.dispose()\n"
    )
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", code],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )
        for _ in range(3)
    ]  # fmt: skip

    def answers() -> list[str]:
        return [process.stdout.readline().strip() for process in processes if process.stdout]

    assert answers() == ["ready"] * 3
    for number in range(4):
        if dialect == "sqlite":
            url = f"sqlite:///{tmp_path / f'{number}.db'}"
        else:
            url = request.getfixturevalue("postgres_url")(migrated=False)
        for process in processes:
            assert process.stdin is not None
            process.stdin.write(f"{url}\n")
            process.stdin.flush()
        assert answers() == [head_revision()] * 3
    assert [process.communicate()[1] for process in processes] == [""] * 3
    assert [process.returncode for process in processes] == [0] * 3
