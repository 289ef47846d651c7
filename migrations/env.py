"""Runs migrations on the connection that ``tuner.store.migrate`` hands over."""

from __future__ import annotations

from alembic import context

from tuner.store.migrate import VERSION_TABLE
from tuner.store.tables import Base

connection = context.config.attributes["connection"]
context.configure(
    connection=connection,
    target_metadata=Base.metadata,
    version_table=VERSION_TABLE,
    render_as_batch=connection.dialect.name == "sqlite",
    compare_type=True,
)
with context.begin_transaction():
    context.run_migrations()
