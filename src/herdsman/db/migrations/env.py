"""Run by Alembic for every command; the connection comes from upgrade.py, with its lock held."""

from typing import cast

from alembic import context
from sqlalchemy import Connection

from herdsman.db import schema

connection = cast("Connection", context.config.attributes["connection"])
context.configure(
    connection=connection,
    target_metadata=schema.metadata,
    render_as_batch=connection.dialect.name == "sqlite",
    transaction_per_migration=False,
)
with context.begin_transaction():
    context.run_migrations()
