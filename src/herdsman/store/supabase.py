"""SQL that closes the tables on Supabase and leaves workers the functions of the tasks face (S1-28)."""

from collections.abc import Iterable, Sequence

from herdsman.store.schema import metadata
from herdsman.store.task_face_postgres import WORKER_ROLE
from herdsman.store.task_face_routines import INNER, PUBLIC, WORKER_FUNCTIONS
from herdsman.store.task_face_rows import VIEW
from herdsman.store.views import VIEWS

POLICY = "herdsman_control"
OUTSIDERS = ("anon", "authenticated")
"""Roles that Supabase gives rights on everything new; they may not exist elsewhere."""


def supabase_sql(schema: str, *, roles: Sequence[str] = ()) -> str:
    """To be run by the owner of the tables, again after each upgrade; harmless to repeat.

    `roles` are those that the control plane logs in with, beside the owner.
    """
    place = quoted(schema)
    parts = (
        _worker_role(place),
        *(_closed_table(f"{place}.{quoted(name)}", roles) for name in _tables()),
        *(f"ALTER VIEW {place}.{name} SET (security_invoker = true);" for name in _views()),
        _revoked(place),
        _granted(place),
        "NOTIFY pgrst, 'reload schema';",
    )
    return "\n".join(parts) + "\n"


def quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _tables() -> list[str]:
    return [*sorted(metadata.tables), "alembic_version"]


def _views() -> list[str]:
    return [*VIEWS, VIEW]


def _sequences() -> list[str]:
    keys = ((table, table.autoincrement_column) for table in metadata.tables.values())
    growing = ((table.name, key.name) for table, key in keys if key is not None and key.autoincrement is True)
    return sorted(f"{table}_{key}_seq" for table, key in growing)


def _worker_role(place: str) -> str:
    missing = f"NOT EXISTS (SELECT FROM pg_roles WHERE rolname = '{WORKER_ROLE}')"
    return (
        f"DO $$ BEGIN IF {missing} THEN CREATE ROLE {WORKER_ROLE} NOLOGIN; END IF; END $$;\n"
        # Whoever may add a function here could put one in the way of ours.
        f"REVOKE CREATE ON SCHEMA {place} FROM PUBLIC;\n"
        f"GRANT USAGE ON SCHEMA {place} TO {WORKER_ROLE};"
    )


def _closed_table(table: str, roles: Sequence[str]) -> str:
    """FORCE binds the owner as well, so the owner needs the one policy that there is."""
    allowed = ", ".join(["CURRENT_USER", *map(quoted, roles)])
    return (
        f"ALTER TABLE {table} ENABLE ROW LEVEL SECURITY;\n"
        f"ALTER TABLE {table} FORCE ROW LEVEL SECURITY;\n"
        f"DROP POLICY IF EXISTS {POLICY} ON {table};\n"
        f"CREATE POLICY {POLICY} ON {table} TO {allowed} USING (true) WITH CHECK (true);"
    )


def _revoked(place: str) -> str:
    relations = _listed(place, map(quoted, (*_tables(), *_views())))
    sequences, functions = _listed(place, _sequences()), _listed(place, (*INNER, "task_face_allow", *PUBLIC))
    whats = (f"TABLE {relations}", f"SEQUENCE {sequences}", f"FUNCTION {functions}")
    public = (f"REVOKE ALL ON {what} FROM PUBLIC, {WORKER_ROLE};" for what in whats)
    others = (_for_role(role, f"REVOKE ALL ON {what} FROM {role}") for role in OUTSIDERS for what in whats)
    return "\n".join((*public, *others))


def _granted(place: str) -> str:
    """The gateway switches to the role that a token names; the key of the service may call everything."""
    return "\n".join(
        (
            f"GRANT EXECUTE ON FUNCTION {_listed(place, WORKER_FUNCTIONS)} TO {WORKER_ROLE};",
            _for_role("authenticator", f"GRANT {WORKER_ROLE} TO authenticator"),
            _for_role("service_role", f"GRANT EXECUTE ON FUNCTION {_listed(place, PUBLIC)} TO service_role"),
        )
    )


def _for_role(role: str, statement: str) -> str:
    there = f"EXISTS (SELECT FROM pg_roles WHERE rolname = '{role}')"
    return f"DO $$ BEGIN IF {there} THEN {statement}; END IF; END $$;"


def _listed(place: str, names: Iterable[str]) -> str:
    return ", ".join(f"{place}.{name}" for name in names)
