"""`herdsman policy`: limits of agents and gates for all of them, and a second scaling policy that only watches."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from herdsman.cli.connection import connect
from herdsman.cli.listing import LayoutOption, Listing, Watch
from herdsman.cli.listing import show as show_list
from herdsman.cli.output import Layout, Output, OutputOption, age, echo, print_json
from herdsman.client import calls
from herdsman.errors import InvalidRequest
from herdsman.fleet.wire import ShadowOut, ShadowPoolOut, ShadowReportOut, SideOut
from herdsman.jobs.wire import MOST_HOURS
from herdsman.limits.policy import changes, check_policy, with_value
from herdsman.limits.wire import (
    ChangeOut,
    EditionOut,
    HistoryOut,
    PolicyDocument,
    PolicyIn,
    PolicyOut,
    written,
)

policy = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    help="Show and change the limits of agents and the gates for all of them; compare a shadow scaling policy.",
)


@policy.command()
def show(
    version: Annotated[int | None, typer.Option(min=0, help="An earlier one.")] = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Show the policy that holds now: what differs from having none."""
    found = connect().send(calls.policy(version))
    if output is Output.JSON:
        print_json(found.model_dump(mode="json"))
        return
    _print_head(found)
    _print_changes([ChangeOut.of(each) for each in changes(_plain(PolicyDocument()), _plain(found.policy))])


@policy.command("set")
def set_policy(
    edits: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="PATH=VALUE", help="Such as agents.ann.burst=10; the value none takes it away."
        ),
    ] = None,
    note: Annotated[str, typer.Option(help="Why, for the history.")] = "",
    file: Annotated[Path | None, typer.Option(help="Begin with the policy in this JSON file.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would change.")] = False,
    output: OutputOption = Output.TABLE,
) -> None:
    """Change the policy, and print what that changed."""
    if not edits and file is None:
        raise InvalidRequest("nothing to set: name it as PATH=VALUE, or give a --file")
    client = connect()
    now = client.send(calls.policy(None))
    document = _edited(_plain(now.policy) if file is None else _read(file), edits or [])
    if dry_run:
        made = changes(_plain(now.policy), _plain(document))
        _say(
            [ChangeOut.of(each) for each in made], f"version {now.version} stays: nothing was written", output
        )
        return
    done = client.send(calls.set_policy(PolicyIn(policy=document, note=note, base_version=now.version)))
    changed = done.version != now.version
    _say(
        done.changes if changed else (),
        f"version {done.version}" if changed else f"version {done.version} already says that",
        output,
    )


@policy.command()
def history(
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, max=200, help="How many at most.")] = 20,
    after: Annotated[int | None, typer.Option(min=0, help="Where the page before ended.")] = None,
    watch: Watch = False,
    output: LayoutOption = Layout.TABLE,
) -> None:
    """List who changed what, the newest first."""
    client = connect()
    show_list(lambda: _history(client.send(calls.policy_history(after, limit))), output, watch=watch)


def _history(found: HistoryOut) -> Listing:
    return Listing(
        document=found.model_dump(mode="json"),
        columns=("VERSION", "AGE", "BY", "NOTE", "CHANGES", "+AT"),
        rows=[
            (
                str(each.version),
                "" if each.created_at is None else age(each.created_at),
                each.by or "",
                each.note,
                "; ".join(_change(made) for made in each.changes),
                "" if each.created_at is None else f"{each.created_at:%Y-%m-%d %H:%M:%S}",
            )
            for each in found.versions
        ],
        empty="nobody has set a policy yet; set one with: herdsman policy set default.rate_per_second=5",
        next=None if found.next is None else str(found.next),
    )


def _edited(document: dict[str, Any], edits: Sequence[str]) -> PolicyDocument:
    found: dict[str, object] = document
    for edit in edits:
        path, given, value = edit.partition("=")
        if not given or not path:
            raise InvalidRequest(f"{edit!r} is not PATH=VALUE, such as agents.ann.rate_per_second=5")
        found = with_value(found, path, _value(value))
    made = written(found)
    check_policy(made.policy())
    return made


def _value(text: str) -> object:
    """JSON where it is, and else a name; `none` and nothing at all take a value away."""
    if text.lower() in ("", "none", "null"):
        return None
    try:
        return json.loads(text)
    except (json.JSONDecodeError, RecursionError):
        return text


def _read(file: Path) -> dict[str, Any]:
    """A file may be what `show -o json` printed, or the policy in it alone."""
    try:
        found: Any = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, json.JSONDecodeError, RecursionError) as error:
        raise InvalidRequest(f"{file} cannot be read as JSON: {error}") from error
    inner: Any = found.get("policy", found) if isinstance(found, dict) else None  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
    if not isinstance(inner, dict):
        raise InvalidRequest(f"{file} holds no policy: it must be a JSON object")
    return inner  # pyright: ignore[reportUnknownVariableType]


def _say(made: Sequence[ChangeOut], told: str, output: Output) -> None:
    if output is Output.JSON:
        print_json({"said": told, "changes": [each.model_dump(mode="json") for each in made]})
        return
    _print_changes(made)
    echo(told)


def _print_head(found: PolicyOut | EditionOut) -> None:
    if found.created_at is None:
        echo("version 0: nobody has set a policy yet")
        return
    note = f": {found.note}" if found.note else ""
    echo(f"version {found.version}, {age(found.created_at)} ago by {found.by}{note}")


def _print_changes(made: Sequence[ChangeOut]) -> None:
    for each in made:
        echo(f"  {_change(each)}")


def _change(made: ChangeOut) -> str:
    old = "none" if made.old is None else json.dumps(made.old)
    new = "none" if made.new is None else json.dumps(made.new)
    return f"{made.path}: {old} -> {new}"


def _plain(document: PolicyDocument) -> dict[str, Any]:
    return document.model_dump(mode="json")


@policy.command()
def shadow(
    hours: Annotated[int, typer.Option(min=1, max=MOST_HOURS, help="Look back so far.")] = 24,
    output: OutputOption = Output.TABLE,
) -> None:
    """Say how often the policy of SHADOW_SCALING_POLICY would have done something else, and what."""
    found = connect().send(calls.shadow(hours))
    if output is Output.JSON:
        print_json(found.model_dump(mode="json"))
    else:
        _show(found)


def lines(noted: list[dict[str, Any]]) -> list[str]:
    """What a cycle says of its shadows, in the order in which it says it."""
    return [line for each in noted for line in _lines(ShadowOut.model_validate(each))]


def _show(found: ShadowReportOut) -> None:
    if found.since is None:
        echo(
            f"no cycle of the last {found.hours} hours asked a shadow;"
            " set SHADOW_SCALING_POLICY, for example to adaptive, and start herdsman again"
        )
        return
    failed = f", and in {found.failed} it raised" if found.failed else ""
    echo(
        f"since {age(found.since)} ago: {found.cycles} cycles looked at, in {found.differed} of them a shadow"
        f" would have done something else{failed}"
    )
    if found.truncated:
        echo("there were more cycles: only the newest were looked at")
    for pool in found.pools:
        echo(f"  {_pool(pool)}")
    if found.last:
        echo("where it differed, newest first:")
    for each in found.last:
        first, *rest = _lines(each)
        echo(f"  cycle {each.cycle}, {age(each.at)} ago: {first}")
        for line in rest:
            echo(f"  {line}")


def _pool(pool: ShadowPoolOut) -> str:
    failed = f", {pool.failed} raised" if pool.failed else ""
    return (
        f"pool {pool.pool}, shadow {pool.policy}: {pool.differed} of {pool.cycles} cycles differ{failed};"
        f" {pool.worker_hours_more:.1f} worker-hours more, {pool.worker_hours_less:.1f} less"
    )


def _lines(each: ShadowOut) -> list[str]:
    if each.error:
        return [f"pool {each.pool}: the shadow {each.policy} raised {each.error}"]
    if each.live is None or each.shadow is None:
        return [f"pool {each.pool}: the shadow {each.policy} would do the same"]
    return [f"pool {each.pool}", f"  {_side(each.live)}", f"  {_side(each.shadow)} [shadow: not done]"]


def _side(side: SideOut) -> str:
    return f"{side.policy:<10} to {side.workers} workers: {side.why}"
