"""`herdsman token`: who may call the API. Works on the database itself, so it needs no token."""

from datetime import timedelta
from typing import Annotated

import typer

from herdsman.access import commands as access_commands
from herdsman.access.rules import Role, Token
from herdsman.cli.context import services_here, settings_here
from herdsman.cli.listing import LayoutOption, Listing, Watch, show
from herdsman.cli.output import Layout, Output, OutputOption, age, ago, echo, print_json
from herdsman.errors import InvalidRequest
from herdsman.server.wiring import open_keyring

token = typer.Typer(
    add_completion=False, no_args_is_help=True, help="Make, list and revoke the tokens of the API."
)


@token.command()
def create(
    name: Annotated[str, typer.Argument(help="Whose it is, or what for.")],
    role: Annotated[Role, typer.Option(help="What its bearer may do.")] = Role.VIEWER,
    agent: Annotated[str | None, typer.Option(help="Of a submitter: whose jobs; without it, NAME.")] = None,
    days: Annotated[
        float | None, typer.Option(help="Days that it is good for; without it, for ever.")
    ] = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Make a token and print it, this once."""
    settings = settings_here()
    services = services_here(settings)
    try:
        life = None if days is None else timedelta(days=days)
    except (OverflowError, ValueError) as error:
        raise InvalidRequest(f"--days is {days}: no token lives so long") from error
    issued = access_commands.create_token(
        services, open_keyring(settings, services), role=role, name=name, agent=agent, expires_in=life
    )
    if output is Output.JSON:
        print_json({"token": issued.secret, **_document(issued.token)})
    else:
        echo(issued.secret)


@token.command("list")
def list_tokens(
    limit: Annotated[int, typer.Option("--limit", "-n", help="How many at most.")] = 100,
    after: Annotated[str | None, typer.Option(help="Where the page before ended.")] = None,
    watch: Watch = False,
    output: LayoutOption = Layout.TABLE,
) -> None:
    """List tokens; their secrets are kept nowhere."""
    services = services_here()
    show(
        lambda: _list(access_commands.list_tokens(services, after=after, limit=limit)),
        output,
        watch=watch,
    )


@token.command()
def revoke(token_id: Annotated[str, typer.Argument(metavar="ID", help="The token's id.")]) -> None:
    """End a token; every replica refuses it within 5 seconds."""
    revoked = access_commands.revoke_token(services_here(), token_id)
    echo(f"{revoked.id} ({revoked.role} {revoked.name}) is revoked")


def _document(token: Token) -> dict[str, object]:
    return {field: getattr(token, field) for field in Token.__dataclass_fields__}


def _list(found: list[Token]) -> Listing:
    return Listing(
        document={"tokens": [_document(each) for each in found]},
        columns=("ID", "ROLE", "NAME", "STATE", "AGE", "+USED", "+AGENT", "+WORKER"),
        rows=[_row(each) for each in found],
        empty="no tokens; make one with: herdsman token create NAME",
    )


def _row(each: Token) -> tuple[str, ...]:
    narrow = (each.id, each.role, each.name, _state(each), age(each.created_at))
    return (*narrow, ago(each.used_at), each.agent or "", each.worker_id or "")


def _state(token: Token) -> str:
    if token.revoked_at is not None:
        return "revoked"
    return "for ever" if token.expires_at is None else f"until {token.expires_at:%Y-%m-%d %H:%M}"
