"""`herdsman db` and `herdsman token`: commands on the database itself, which need no server and no token."""

from dataclasses import asdict
from datetime import timedelta
from typing import Annotated

import typer

from herdsman.access import commands as access_commands
from herdsman.access.rules import Role, Token
from herdsman.cli.listing import After, LayoutOption, Listing, Watch, show
from herdsman.cli.output import Layout, Output, OutputOption, Yes, age, ago, ask_first, echo, printed_json
from herdsman.cli.services import services_here, settings_here
from herdsman.db.checks import inspect_server, latest, require_current, require_undamaged
from herdsman.db.upgrade import upgrade
from herdsman.errors import InvalidRequest
from herdsman.fleet import installation_sql
from herdsman.fleet.model import moved
from herdsman.fleet.reconcile import adopt
from herdsman.server.wiring import open_control, open_database, open_keyring

database = typer.Typer(add_completion=False, no_args_is_help=True)
token = typer.Typer(add_completion=False, no_args_is_help=True)


# The lowest is registered first.
@database.command("upgrade", help="Upgrade the tables. Safe to repeat, and beside a running version.")
@database.command("init", help="Create the tables, or upgrade them. Safe to repeat.")
def upgrade_command() -> None:
    here = open_database(settings_here())
    revision = upgrade(here)
    echo(f"{inspect_server(here)} is at schema {revision}, guards in place")


@database.command()
def check() -> None:
    """Check the server's version and settings, the schema and the guards; change nothing."""
    here = open_database(settings_here())
    server = inspect_server(here)
    echo(f"server   {server}")
    for warning in server.warnings:
        echo(f"warning  {warning}")
    require_undamaged(here)
    require_current(here)
    echo(f"schema   {latest()}, guards in place")


@database.command("adopt")
def adopt_command(yes: Yes = False) -> None:
    """Confirm that this database is the one in use, after it was moved, copied or restored from a backup."""
    settings = settings_here()
    services = services_here(settings)
    reconciler = open_control(settings, services, spawns=False).reconciler
    known = services.database.read(installation_sql.find)
    here = services.database.read(installation_sql.place_of)
    doubt = reconciler.observer.observe_readonly().doubt or ("" if known is None else known.hint)
    if known is None or not doubt:
        echo("nothing to adopt: the database is where it was used last, and no worker is ahead of it")
        return
    echo("\n".join(line for line in (doubt, moved(known.place, here)) if line))
    ask_first(
        "Is this the only copy in use? Instances that it once started and that belong to none of its workers are"
        f" terminated after {settings.providers.orphan_grace_sec:g} s.",
        yes=yes,
    )
    adopt(reconciler)
    echo("adopted: the next cycle starts and terminates instances again")


@token.command()
def create(
    name: Annotated[str, typer.Argument(help="Whose it is, or what it is for.")],
    role: Annotated[Role, typer.Option(help="What the token allows.")] = Role.VIEWER,
    agent: Annotated[str | None, typer.Option(help="For a submitter: whose jobs it submits; NAME by default.")] = None,
    days: Annotated[float | None, typer.Option(help="Days until it expires; never by default.")] = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Create a token and print it; it is not shown again."""
    settings = settings_here()
    services = services_here(settings)
    try:
        life = None if days is None else timedelta(days=days)
    except (OverflowError, ValueError) as error:
        raise InvalidRequest(f"--days is {days}: that is too long") from error
    issued = access_commands.create_token(
        services, open_keyring(settings, services), role=role, name=name, agent=agent, expires_in=life
    )
    if not printed_json(output, {"token": issued.secret, **asdict(issued.token)}):
        echo(issued.secret)


@token.command("list")
def list_tokens(
    limit: Annotated[int, typer.Option("--limit", "-n", help="How many at most.")] = 100,
    after: After = None,
    watch: Watch = False,
    output: LayoutOption = Layout.TABLE,
) -> None:
    """List tokens; the secrets themselves are not stored."""
    services = services_here()

    def read() -> Listing:
        found = access_commands.list_tokens(services, after=after, limit=limit)
        return Listing(
            document={"tokens": found},
            columns=("ID", "ROLE", "NAME", "STATUS", "AGE", "+USED", "+AGENT", "+WORKER"),
            rows=[_row(each) for each in found],
            empty="no tokens; create one with: herdsman token create NAME",
        )

    show(read, output, watch=watch)


def _row(each: Token) -> tuple[str, ...]:
    status = "no expiry" if each.expires_at is None else f"until {each.expires_at:%Y-%m-%d %H:%M}"
    status = status if each.revoked_at is None else "revoked"
    narrow = (each.id, each.role, each.name, status, age(each.created_at))
    return (*narrow, ago(each.used_at), each.agent or "", each.worker_id or "")


@token.command()
def revoke(token_id: Annotated[str, typer.Argument(metavar="ID", help="The token's id.")]) -> None:
    """Revoke a token; every replica refuses it within 5 seconds."""
    revoked = access_commands.revoke_token(services_here(), token_id)
    echo(f"{revoked.id} ({revoked.role} {revoked.name}) is revoked")
