"""`herdsman policy`: limits of agents, global gates, and a shadow scaling policy."""

import json
from collections.abc import Iterator, Mapping, Sequence
from importlib.metadata import entry_points
from pathlib import Path
from typing import Annotated, Any

import typer

from herdsman.cli.connect import connect
from herdsman.cli.listing import LayoutOption, Limit, Listing, Watch
from herdsman.cli.listing import show as show_list
from herdsman.cli.output import DryRun, Layout, Output, OutputOption, age, echo, printed_json
from herdsman.client import calls
from herdsman.errors import InvalidRequest
from herdsman.fleet.scaling import OURS, ScalingPolicy
from herdsman.fleet.wire import ShadowOut
from herdsman.jobs.wire import MOST_HOURS
from herdsman.limits.control_policy import changes, check_policy, with_value
from herdsman.limits.wire import ChangeOut, PolicyDocument, PolicyIn, written

policy = typer.Typer(add_completion=False, no_args_is_help=True)


@policy.command()
def show(
    version: Annotated[int | None, typer.Option(min=0, help="An earlier version.")] = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Show the policy in force: everything that is limited."""
    found = connect().send(calls.policy(version))
    if printed_json(output, found):
        return
    if found.created_at is None:
        echo("version 0: no policy has been set yet")
    else:
        note = f": {found.note}" if found.note else ""
        echo(f"version {found.version}, {age(found.created_at)} ago by {found.by}{note}")
    _print_changes(_differences(PolicyDocument(), found.policy))


@policy.command("set")
def set_policy(
    edits: Annotated[
        list[str] | None,
        typer.Argument(metavar="PATH=VALUE", help="Such as agents.ann.burst=10; the value none removes it."),
    ] = None,
    note: Annotated[str, typer.Option(help="The reason, for the history.")] = "",
    file: Annotated[Path | None, typer.Option(help="Start from the policy in this JSON file.")] = None,
    dry_run: DryRun = False,
    output: OutputOption = Output.TABLE,
) -> None:
    """Change the policy, and print the differences."""
    if not edits and file is None:
        raise InvalidRequest("nothing to set: give PATH=VALUE, or a --file")
    client = connect()
    now = client.send(calls.policy(None))
    found: dict[str, object] = now.policy.model_dump(mode="json") if file is None else _read(file)
    for edit in edits or []:
        path, given, text = edit.partition("=")
        if not given or not path:
            raise InvalidRequest(f"{edit!r} is not PATH=VALUE, such as agents.ann.rate_per_second=5")
        try:
            value: object = json.loads(text)
        except (json.JSONDecodeError, RecursionError):
            value = None if text.lower() in ("", "none") else text  # a name
        found = with_value(found, path, value)
    document = written(found)
    check_policy(document.policy())
    if dry_run:
        made = _differences(now.policy, document)
        summary = f"dry run: version {now.version} stays in force"
    else:
        done = client.send(calls.set_policy(PolicyIn(policy=document, note=note, base_version=now.version)))
        changed = done.version != now.version
        made = done.changes if changed else ()
        summary = f"version {done.version}" if changed else f"version {done.version}: nothing to change"
    if not printed_json(output, {"said": summary, "changes": list(made)}):
        _print_changes(made)
        echo(summary)


@policy.command()
def history(
    limit: Limit = 20,
    after: Annotated[int | None, typer.Option(min=0, help="Where the previous page ended.")] = None,
    watch: Watch = False,
    output: LayoutOption = Layout.TABLE,
) -> None:
    """List who changed what, newest first."""
    client = connect()

    def read() -> Listing:
        found = client.send(calls.policy_history(after, limit))
        rows: list[tuple[str, ...]] = []
        for each in found.versions:
            then, what = each.created_at, "; ".join(_change(made) for made in each.changes)
            since, at = ("", "") if then is None else (age(then), f"{then:%Y-%m-%d %H:%M:%S}")
            rows.append((str(each.version), since, each.by or "", each.note, what, at))
        return Listing(
            document=found,
            columns=("VERSION", "AGE", "BY", "NOTE", "CHANGES", "+AT"),
            rows=rows,
            empty="no policy has been set yet; set one with: herdsman policy set default.rate_per_second=5",
            next=None if found.next is None else str(found.next),
        )

    show_list(read, output, watch=watch)


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


def _differences(old: PolicyDocument, new: PolicyDocument) -> list[ChangeOut]:
    return [ChangeOut.of(each) for each in changes(old.model_dump(mode="json"), new.model_dump(mode="json"))]


def _print_changes(made: Sequence[ChangeOut]) -> None:
    for each in made:
        echo(f"  {_change(each)}")


def _change(made: ChangeOut) -> str:
    old, new = ("none" if each is None else json.dumps(each) for each in (made.old, made.new))
    return f"{made.path}: {old} -> {new}"


@policy.command()
def shadow(
    hours: Annotated[int, typer.Option(min=1, max=MOST_HOURS, help="How many hours back.")] = 24,
    output: OutputOption = Output.TABLE,
) -> None:
    """Compare SHADOW_SCALING_POLICY with the live policy: how often, and where, it would have decided otherwise."""
    found = connect().send(calls.shadow(hours))
    if printed_json(output, found):
        return
    if found.since is None:
        echo(
            f"no cycle of the last {found.hours} hours ran a shadow policy;"
            " set SHADOW_SCALING_POLICY, for example to adaptive, and restart herdsman"
        )
        return
    failed = f"; it failed in {found.failed}" if found.failed else ""
    echo(
        f"in the {age(found.since)} since the first one, {found.cycles} cycles ran a shadow policy, and in"
        f" {found.differed} it would have acted differently{failed}"
    )
    if found.truncated:
        echo("there were more cycles: only the newest are counted")
    for pool in found.pools:
        raised = f", {pool.failed} failed" if pool.failed else ""
        echo(
            f"  pool {pool.pool}, shadow {pool.policy}: {pool.differed} of {pool.cycles} cycles differ{raised};"
            f" {pool.worker_hours_more:.1f} worker-hours more, {pool.worker_hours_less:.1f} less"
        )
    if found.last:
        echo("where they differed, newest first:")
    for each in found.last:
        first, *rest = _shadow_lines(each)
        echo(f"  cycle {each.cycle}, {age(each.at)} ago: {first}")
        for line in rest:
            echo(f"  {line}")


def print_shadows(noted: list[dict[str, Any]]) -> None:
    """The shadow policies of one cycle, in the order in which it recorded them."""
    for each in noted:
        for line in _shadow_lines(ShadowOut.model_validate(each)):
            echo(line)


def _shadow_lines(each: ShadowOut) -> Iterator[str]:
    if each.error:
        yield f"pool {each.pool}: the shadow policy {each.policy} failed: {each.error}"
    elif each.live is None or each.shadow is None:
        yield f"pool {each.pool}: the shadow policy {each.policy} would do the same"
    else:
        yield f"pool {each.pool}"
        for side, note in ((each.live, ""), (each.shadow, " [shadow: not done]")):
            yield f"  {side.policy:<10} to {side.workers} workers: {side.reason}{note}"


def installed_policies() -> Mapping[str, ScalingPolicy]:
    """Ours and those of plugins, by their names."""
    return {**OURS, **{each.name: each.load() for each in entry_points(group="herdsman.policies")}}
