from __future__ import annotations

import os
import socket
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest
from databases import FreshDatabase, dump, new, running
from sqlalchemy import URL, Engine, create_engine, event, make_url, select, text
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.orm import Session

from tuner.errors import DatabaseUnavailable, InvalidInput
from tuner.states import StudyEvent, StudyState
from tuner.store.engine import is_embedded, open_engine, parse_url, reading, write
from tuner.store.migrate import check_revision, upgrade
from tuner.store.ownership import Ownership
from tuner.store.repository import Repository
from tuner.store.tables import StudyRow

_SERVER_READ_ONLY = "&options=-c%20default_transaction_read_only%3Don"


def refusal(repository: Repository) -> str:
    """The one sentence with which creating a study is refused."""
    with pytest.raises(DatabaseUnavailable) as caught:
        repository.create_study(new("refused"))
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """An SQLite database at head."""
    upgrade(f"sqlite:///{tmp_path / 'paretune.db'}")
    return tmp_path / "paretune.db"


@pytest.fixture
def server_url(postgres_url: FreshDatabase) -> str:
    return postgres_url()


@pytest.fixture
def server(server_url: str) -> Iterator[Engine]:
    made = open_engine(server_url)
    yield made
    made.dispose()


@pytest.mark.parametrize(
    "url",
    ["", "paretune.db", "sqlite:paretune.db", "postgresql://u:secret@h:port/x", "mysql://u:secret@h/x", "sqlite://",
     "sqlite:///", "sqlite:///:memory:", "sqlite:///file:x?mode=memory&uri=true", "sqlite:///a\0b",
     "sqlite:///x.db?timeout=soon", "sqlite:///x.db?mode=ro"],
)  # fmt: skip
def test_a_url_that_names_no_database_of_ours_is_invalid_input_that_names_the_setting(url: str) -> None:
    with pytest.raises(InvalidInput, match="PARETUNE_DATABASE_URL") as caught:
        parse_url(url)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    ("url", "embedded"),
    [("sqlite:///x.db", True), ("sqlite:////tmp/x.db", True), ("postgresql://u@h/x", False),
     ("postgres://u@h/x", False), ("postgresql+psycopg2://u@h/x", False)],
)  # fmt: skip
def test_a_url_tells_the_dialect_whatever_driver_it_names(url: str, embedded: bool) -> None:
    assert is_embedded(url) == embedded


def test_an_option_that_the_server_does_not_know_is_invalid_input() -> None:
    engine = open_engine("postgresql://u:secret@127.0.0.1/x?colour=red")
    with pytest.raises(InvalidInput, match=r"PARETUNE_DATABASE_URL.*colour") as caught:
        check_revision(engine)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("password", ["u:secret@{address}/x", "u@{address}/x?password=secret"])
def test_a_server_that_does_not_listen_is_one_sentence_without_the_password(password: str) -> None:
    with closing(socket.socket()) as bound:
        bound.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{bound.getsockname()[1]}"
        sentence = refusal(Repository(open_engine(f"postgresql://{password.format(address=address)}")))
    assert sentence.startswith("the database postgresql://u")
    assert "cannot be reached: connection failed" in sentence
    assert "refused" in sentence
    assert "secret" not in sentence


@pytest.fixture
def guarded_url(server_url: str, postgres_server: URL) -> Iterator[URL]:
    """A database for a user who needs a password, ``right``, and may read only one table."""
    url = make_url(server_url)
    administrator = create_engine(url.set(drivername="postgresql+psycopg"), isolation_level="AUTOCOMMIT")
    with administrator.connect() as connection:
        rules = Path(connection.execute(text("SHOW hba_file")).scalar_one())
        kept = rules.read_text()
        connection.execute(text("CREATE ROLE guarded LOGIN PASSWORD 'right'"))
        connection.execute(text("GRANT SELECT ON paretune_alembic_version TO guarded"))
        rules.write_text(f"local all guarded scram-sha-256\n{kept}")
        connection.execute(text("SELECT pg_reload_conf()"))
        yield url.set(username="guarded")
        rules.write_text(kept)
        connection.execute(text("SELECT pg_reload_conf()"))
        connection.execute(text("DROP OWNED BY guarded"))
        connection.execute(text("DROP ROLE guarded"))
    administrator.dispose()


def test_a_wrong_password_is_one_sentence_without_it_and_missing_rights_are_one_too(guarded_url: URL) -> None:
    wrong = open_engine(guarded_url.set(password="wrong-secret").render_as_string(hide_password=False))
    sentence = refusal(Repository(wrong))
    assert "password authentication failed" in sentence
    assert "secret" not in sentence
    right = open_engine(guarded_url.set(password="right").render_as_string(hide_password=False))
    check_revision(right)
    assert "refuses: permission denied for table study" in refusal(Repository(right))
    right.dispose()


def test_a_database_that_the_server_does_not_have_is_one_sentence(server_url: str) -> None:
    engine = open_engine(make_url(server_url).set(database="nowhere").render_as_string(hide_password=False))
    assert 'database "nowhere" does not exist' in refusal(Repository(engine))


def test_an_empty_database_is_sent_to_the_migration(postgres_url: FreshDatabase, tmp_path: Path) -> None:
    for url in (postgres_url(migrated=False), f"sqlite:///{tmp_path / 'empty.db'}"):
        engine = open_engine(url)
        assert "run `paretune migrate`" in refusal(Repository(engine))
        engine.dispose()


def test_a_busy_file_is_waited_for_and_then_refused_with_nothing_written(file: Path) -> None:
    engine = open_engine(f"sqlite:///{file}", busy_timeout_s=0.05)
    repository = Repository(engine)
    with closing(sqlite3.connect(file, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        sentence = refusal(repository)
        # Readers go on beside the writer, and so does the start of another process.
        assert repository.studies() == ([], None)
        upgrade(f"sqlite:///{file}")
        other.execute("ROLLBACK")
    assert sentence == f"the database sqlite:///{file} is busy: another process is writing; nothing was written"
    assert dump(engine) == {"study": [], "event": [], "trial": [], "attempt": [], "measurement": []}
    repository.create_study(new())
    engine.dispose()


def test_a_busy_file_that_becomes_free_in_time_is_written(file: Path) -> None:
    engine = open_engine(f"sqlite:///{file}", busy_timeout_s=30)
    with closing(sqlite3.connect(file, isolation_level=None)) as other, ThreadPoolExecutor(1) as threads:
        other.execute("BEGIN IMMEDIATE")
        creating = threads.submit(Repository(engine).create_study, new())
        threading.Event().wait(0.1)
        assert not creating.done()
        other.execute("ROLLBACK")
        assert creating.result()[1]
    engine.dispose()


def test_a_new_file_that_another_process_is_just_making_is_waited_for(tmp_path: Path) -> None:
    """SQLite itself does not wait here: it refuses at once to change the journal beside a writer."""
    engine = open_engine(f"sqlite:///{tmp_path / 'new.db'}", busy_timeout_s=30)
    with closing(sqlite3.connect(tmp_path / "new.db", isolation_level=None)) as other, ThreadPoolExecutor(1) as threads:
        other.execute("CREATE TABLE theirs (number INTEGER)")
        other.execute("BEGIN IMMEDIATE")
        opening = threads.submit(lambda: engine.connect().close())
        threading.Event().wait(0.1)
        assert not opening.done()
        other.execute("ROLLBACK")
        opening.result()
    engine.dispose()


def test_a_full_file_refuses_with_nothing_half_written(file: Path) -> None:
    engine = open_engine(f"sqlite:///{file}")

    @event.listens_for(engine, "connect")
    def _limit(connection: sqlite3.Connection, _: object) -> None:
        pages = connection.execute("PRAGMA page_count").fetchone()[0]
        connection.execute(f"PRAGMA max_page_count = {pages + 20}")

    repository = Repository(engine)
    lease = running(repository, Ownership(engine))
    before = dump(engine)
    with pytest.raises(DatabaseUnavailable, match=r"is full: .*; nothing was written"):
        repository.create_study(new("large", csv="x" * 200_000))
    assert dump(engine) == before
    assert Ownership(engine).apply(lease, StudyEvent.complete).state is StudyState.completed
    engine.dispose()


def test_a_read_only_database_is_read_and_refuses_to_be_written(file: Path, server_url: str) -> None:
    for writable, read_only in (
        (f"sqlite:///{file}", f"sqlite:///file:{file}?mode=ro&uri=true"),
        (server_url, server_url + _SERVER_READ_ONLY),
    ):
        owner = open_engine(writable)
        running(Repository(owner), Ownership(owner))
        before = dump(owner)
        owner.dispose()
        # At head already, so that nothing has to be written.
        upgrade(read_only)
        engine = open_engine(read_only)
        assert check_revision(engine)
        assert Repository(engine).study("small").state is StudyState.running
        assert refusal(Repository(engine)).endswith(" is read-only; nothing was written")
        assert dump(engine) == before
        engine.dispose()


def test_the_command_line_says_in_one_sentence_that_a_database_is_read_only(file: Path) -> None:
    engine = open_engine(f"sqlite:///{file}")
    Repository(engine).create_study(new())
    engine.dispose()
    result = subprocess.run(
        [sys.executable, "-m", "api.cli", "pause", "small"],
        env=os.environ | {"PARETUNE_DATABASE_URL": f"sqlite:///file:{file}?mode=ro&uri=true"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 6
    assert result.stdout == ""
    assert result.stderr.startswith("error: the database sqlite:///")
    assert result.stderr.endswith(" is read-only; nothing was written\n")
    assert result.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("path", "sentence"),
    [("a-file/paretune.db", "its folder is not writable"), ("a-file", "is not a database"), (".", "cannot be opened")],
)
def test_a_path_that_cannot_be_a_database_is_one_sentence(tmp_path: Path, path: str, sentence: str) -> None:
    (tmp_path / "a-file").write_text("a shopping list, long enough to be taken for a database's header\n" * 20)
    with pytest.raises(DatabaseUnavailable, match=sentence) as caught:
        upgrade(f"sqlite:///{tmp_path / path}")
    assert "\n" not in str(caught.value)


def test_a_damaged_file_is_one_sentence(file: Path) -> None:
    content = bytearray(file.read_bytes())
    content[4096:] = b"\xa5" * (len(content) - 4096)
    file.write_bytes(content)
    engine = open_engine(f"sqlite:///{file}")
    assert refusal(Repository(engine)).endswith(" is damaged")
    engine.dispose()


def test_a_connection_that_the_server_ended_is_replaced_before_it_is_used(server: Engine) -> None:
    repository = Repository(server)
    repository.create_study(new())
    other = create_engine(server.url)
    with other.begin() as connection:
        killed = connection.execute(
            text("SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity"
                 " WHERE datname = current_database() AND pid <> pg_backend_pid()")
        ).all()  # fmt: skip
    other.dispose()
    assert killed == [(True,)]
    assert repository.study("small").revision == 1


def test_a_server_that_goes_away_within_a_change_is_one_sentence_and_leaves_nothing(server: Engine) -> None:
    Repository(server).create_study(new())
    before = dump(server)

    def work(session: Session) -> None:
        session.execute(text("UPDATE study SET revision = 99"))
        session.execute(text("SELECT pg_terminate_backend(pg_backend_pid())"))

    with pytest.raises(DatabaseUnavailable, match="cannot be reached: terminating connection"):
        write(server, work)
    assert dump(server) == before


def at_commit(server: Engine, condition: str, code: str) -> None:
    """Let the server refuse commits that add a study, as long as the condition holds, with this code."""
    with server.begin() as connection:
        connection.execute(text("CREATE SEQUENCE commits"))
        connection.execute(
            text(f"CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN IF {condition} THEN"
                 f" RAISE EXCEPTION 'refused' USING ERRCODE = '{code}'; END IF; RETURN NEW; END $$")
        )  # fmt: skip
        connection.execute(
            text("CREATE CONSTRAINT TRIGGER refuse AFTER INSERT ON study"
                 " DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION refuse()")
        )  # fmt: skip


def test_a_refusal_at_the_commit_is_one_sentence_and_leaves_nothing(server: Engine) -> None:
    at_commit(server, "true", "53100")
    assert "is full" in refusal(Repository(server))
    assert dump(server)["study"] == dump(server)["event"] == []


def test_a_change_that_collided_with_another_is_made_again_and_stored_once(server: Engine) -> None:
    at_commit(server, "nextval('commits') < 3", "40001")
    study, created = Repository(server).create_study(new())
    assert created
    assert [e.study_id for e in Repository(server).events(0)] == [study.id]


def test_a_change_that_always_collides_is_given_up_as_busy(server: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tuner.store.engine.time.sleep", lambda _: None)
    at_commit(server, "true", "40001")
    assert refusal(Repository(server)).endswith("is busy: another process is writing; nothing was written")


def test_two_changes_that_wait_for_each_other_both_happen(server: Engine) -> None:
    repository = Repository(server)
    ids = [repository.create_study(new(name))[0].id for name in ("a", "b")]
    both_hold_one = threading.Barrier(2)

    def touch(order: list[str]) -> None:
        tries = 0

        def work(session: Session) -> None:
            nonlocal tries
            tries += 1
            for position, study_id in enumerate(order):
                row = session.get_one(StudyRow, study_id, with_for_update=True)
                row.active_s += 1
                session.flush()
                if position == 0 and tries == 1:
                    both_hold_one.wait(10)

        write(server, work)

    with ThreadPoolExecutor(2) as threads:
        list(threads.map(touch, (ids, ids[::-1])))
    assert [repository.study(study_id).active_s for study_id in ids] == [2.0, 2.0]


def test_everything_read_in_one_session_is_of_one_moment(engine: Engine, repository: Repository) -> None:
    repository.create_study(new())
    with reading(engine) as session:
        before = session.scalars(select(StudyRow.name)).all()
        repository.create_study(new("late"))
        repository.act("small", StudyEvent.pause)
        assert session.scalars(select(StudyRow.name)).all() == before == ["small"]
        assert session.scalars(select(StudyRow.state)).all() == ["queued"]
    assert len(repository.studies()[0]) == 2


def test_more_at_once_than_there_are_connections_is_one_sentence(
    engine: Engine, repository: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine.pool, "_timeout", 0.01)
    held = [engine.connect() for _ in range(15)]
    assert refusal(repository).endswith("is busy: every connection to it is in use")
    with pytest.raises(DatabaseUnavailable, match="every connection"):
        repository.studies()
    for connection in held:
        connection.close()
    repository.create_study(new())


def test_a_bug_of_ours_is_not_passed_off_as_a_fault_of_the_database(engine: Engine) -> None:
    with pytest.raises(SQLAlchemyError, match="nonsense"):
        write(engine, lambda session: session.execute(text("nonsense")))
    with pytest.raises(SQLAlchemyError, match="no_such_column"), reading(engine) as session:
        session.execute(text("SELECT no_such_column FROM study"))
