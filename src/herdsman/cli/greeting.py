"""What a person sees when the control plane has started."""

from pathlib import Path

import typer

from herdsman.control.commands import count_jobs
from herdsman.control.services import Services
from herdsman.providers.local.gpus import count_gpus
from herdsman.settings import Settings
from herdsman.store.server import inspect_server
from herdsman.store.upgrade import latest


def greet(services: Services, settings: Settings, *, url: str, token: str | None, token_file: Path) -> None:
    server = inspect_server(services.database)
    counts = {state: count for state, count in count_jobs(services).items() if count}
    held = ", ".join(f"{count} {state}" for state, count in counts.items()) or "none yet"
    _line("api", url)
    if token is not None:
        _line("token", f"{token}")
        _line("", f"of an admin, shown only now; kept in {token_file} for the commands of this machine")
    _line("database", f"{server}, schema {latest()}")
    _line("", services.database.engine.url.render_as_string(hide_password=True))
    for warning in server.warnings:
        _line("warning", warning)
    _line("fleet", f"{settings.providers.provider}, {_pools(settings)}")
    if settings.providers.provider == "local" and not settings.local.fake_gpus and count_gpus() == 0:
        _line("warning", "this machine has no GPU; herdsman up --fake-gpus 2 pretends that it has two")
    _line("jobs", held)
    _line("next", "in another terminal: herdsman run demo")
    _line("", "then: herdsman jobs, herdsman workers        stop with Ctrl-C")


def _pools(settings: Settings) -> str:
    pools = {"default": settings, **settings.by_pool}
    return "; ".join(
        f"{'' if name == 'default' else f'pool {name} '}{pool.scaling.min_active_gpus} to"
        f" {pool.scaling.max_active_gpus} workers, policy {pool.scaling.scaling_policy}"
        for name, pool in pools.items()
    )


def _line(what: str, text: object) -> None:
    typer.echo(f"{what:<8}  {text}")
