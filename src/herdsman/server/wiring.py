"""Builds every object, once."""

import logging
import os
import socket
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import timedelta
from functools import cache
from importlib.metadata import entry_points
from secrets import token_hex

import structlog

from herdsman.access.authenticator import Keyring, load_pepper, require_same_pepper
from herdsman.context import Services
from herdsman.db.advisory_lock import open_session_lock
from herdsman.db.connection import Database
from herdsman.errors import HerdsmanError, InvalidSettings, StoreUnavailable
from herdsman.fleet.execute import Executor, WorkerAccess, by_name_only
from herdsman.fleet.leader import LeaderPolicy, Leadership
from herdsman.fleet.model import FleetPolicy
from herdsman.fleet.observe import FleetRules, Observer
from herdsman.fleet.reconcile import Reconciler
from herdsman.fleet.scaling import OURS, ScalingPolicy, require_installed
from herdsman.ids import PoolId, WorkerId
from herdsman.jobs.attempts_sql import store_lines
from herdsman.limits.admit import GateCache
from herdsman.limits.commands import PolicyBook
from herdsman.loops.loop_group import LoopHealth
from herdsman.ports import Clock, Provider, ResultFiles, SystemClock, SystemThreads, Threads
from herdsman.providers import registry
from herdsman.providers.local.provider import count_gpus
from herdsman.providers.registry import Naming
from herdsman.results import open_store
from herdsman.results.local import LocalStore
from herdsman.server.runtime_files import runtime_files, shown_database
from herdsman.settings import Settings, load_settings
from herdsman.settings import options as knobs
from herdsman.settings.environment import instance_name
from herdsman.telemetry.logs import LogRows, configure_logs
from herdsman.wire import new_installation_id, new_job_id, new_worker_id


@dataclass(frozen=True, slots=True)
class Control:
    """The control loop of this replica."""

    leadership: Leadership
    reconciler: Reconciler
    provider: Provider
    loops: LoopHealth = field(default_factory=LoopHealth)
    """Knows of loops that hang."""


def open_database(settings: Settings, clock: Clock | None = None) -> Database:
    chosen_one = settings.database
    return Database(
        chosen_one.database_url.get_secret_value(),
        clock=clock or SystemClock(),
        timeout=timedelta(seconds=chosen_one.sql_timeout_sec),
        pool_size=chosen_one.sql_pool_size,
        prepare=chosen_one.sql_prepare,
        # Read again each time: a password may be changed in its file while we run.
        read_url=lambda: load_settings().database.database_url.get_secret_value(),  # noqa: PLW0108
    )


def open_services(settings: Settings) -> Services:
    database, clock, results = open_database(settings), SystemClock(), open_results(settings)
    wait = timedelta(minutes=settings.scaling.max_task_wait_minutes)
    strict = settings.api.strict_model_store
    job_policy = replace(settings.jobs.policy(), model_wait=wait, model_dwell=wait / 5, known_models_only=strict)
    return Services(
        database,
        job_policy,
        new_job_id,
        leasing=settings.leases.policy(),
        rules=PolicyBook(database, clock),
        gates=GateCache(database, clock),
        pools=knobs.pool_limits(settings),
        fleet=lambda: FleetRules(pools=pools_kept(settings), scaling=installed_policies()),
        # A bucket is left to its own rules: it may be slow or away, and the sweeper has to go on.
        drop_files=results.drop if isinstance(results, LocalStore) else lambda _: None,
    )


def pools_kept(settings: Settings) -> Mapping[PoolId, FleetPolicy]:
    """The pools of the settings, as far as the place where their workers run has room for them."""
    pools = knobs.fleet_policies(settings)
    if settings.providers.provider != knobs.LOCAL:
        return pools
    return knobs.within_this_machine(pools, settings.local.fake_gpus or _gpus_here())


@cache
def _gpus_here() -> int:
    """Looked at once: it takes the driver a moment, and is asked for with every answer."""
    return count_gpus()


def open_results(settings: Settings) -> ResultFiles:
    """Where the files of jobs are kept; nothing is touched yet."""
    return open_store(knobs.result_options(settings))


def open_leadership(settings: Settings, database: Database, *, serves: bool) -> Leadership:
    """Only one that `serves` the API can tell workers to go on while the database is away."""
    leader = settings.leader
    # A follower may look more often than it is told to, never less: nobody leads until it does.
    follow = min(timedelta(seconds=leader.gpu_orchestrator_leader_loop_s), LeaderPolicy().follow)
    ttl, renew = timedelta(seconds=leader.leader_ttl_sec), timedelta(seconds=leader.leader_renew_sec)
    hold = timedelta(seconds=leader.outage_grace_sec if serves else 0)
    policy = LeaderPolicy(ttl=ttl, renew=renew, follow=follow, hold=hold)
    lock = open_session_lock(database, leader.gpu_orchestrator_leader_lock, idle=ttl)
    # Unique: a container that starts again has the same name and process id as the one before.
    holder = f"{socket.gethostname()}:{os.getpid()}:{token_hex(4)}"
    departed = runtime_files(settings).departed()
    return Leadership(database, SystemClock(), holder, policy, lock, departed)


def open_provider(settings: Settings) -> Provider:
    """The one that PROVIDER names. A plugin of others is opened without options, and reads its own settings."""
    name = settings.providers.provider
    opening = registry.find(name)
    match name:
        case "local":
            options = knobs.local_options(settings)
        case "runpod":
            options = knobs.runpod_options(settings)
        case _:
            options = {}
    return opening(options, SystemClock())


@contextmanager
def stored_logs(settings: Settings, database: Database) -> Generator[None]:
    """While it lasts, log lines are kept in the database too, where the settings say so.

    Raises `StoreUnavailable` when they cannot be, and DB_LOGGING_REQUIRED asks for them.
    """
    chosen, name = settings.logs, instance_name(settings)
    if not (chosen.enable_db_logging or chosen.db_logging_required):
        yield
        return
    rows = LogRows(
        lambda some: database.transact(lambda tx: store_lines(tx, name, some)),
        level=chosen.db_log_level,
        batch=chosen.db_log_batch_size,
        flush_every=chosen.db_log_flush_interval,
    )
    configure_logs(chosen.log_level, chosen.log_format, file=chosen.log_file, instance=name, rows=rows)
    structlog.get_logger().log(logging.getLevelNamesMapping()[chosen.db_log_level.upper()], "log.stored")
    try:
        rows.flush()
    except HerdsmanError as error:
        if chosen.db_logging_required:
            raise StoreUnavailable(
                f"log lines cannot be stored, and DB_LOGGING_REQUIRED is set: {error}; let this database user insert"
                " into system_logs, or set it to false"
            ) from error
        structlog.get_logger().warning("log.not_stored", reason=str(error))
    rows.start()
    try:
        yield
    finally:
        rows.close()


def open_keyring(settings: Settings, services: Services) -> Keyring:
    """What tokens are made and checked with; refused when it is not that of the other replicas."""
    api = settings.api
    given = None if api.token_pepper is None else api.token_pepper.get_secret_value()
    keyring = Keyring(
        pepper=load_pepper(given, runtime_files(settings).pepper),
        worker_life=timedelta(seconds=api.worker_token_ttl_sec),
        bootstrap_life=timedelta(seconds=api.bootstrap_token_ttl_sec),
    )
    require_same_pepper(services.database, keyring)
    return keyring


def open_access(settings: Settings, services: Services) -> WorkerAccess:
    """How workers that this process starts reach the API.

    `InvalidSettings` where they would not reach it: a rented machine that calls nobody costs money for nothing.
    """
    require_address(settings)
    url = settings.api.api_url
    if url is None:
        there = runtime_files(settings).running()
        if there is None or there.database != shown_database(settings):
            raise InvalidSettings(
                "no API of this database runs here, so a new worker would not know whom to call:"
                " start herdsman up in another terminal, or set API_URL"
            )
        url = there.url
    return WorkerAccess(services=services, keyring=open_keyring(settings, services), url=url)


def require_address(settings: Settings) -> None:
    """Before the first cent."""
    if (fault := knobs.address_fault(settings)) is not None:
        raise InvalidSettings(fault)


def open_control(
    settings: Settings, services: Services, access: WorkerAccess | None = None, *, spawns: bool = True
) -> Control:
    """Raises `InvalidSettings` when the provider or the scaling policy is not there, or lacks something.

    Without `spawns` nothing but what starts workers can be asked of it, and no address of the API is needed.
    """
    serves = access is not None
    if access is None and spawns:
        access = open_access(settings, services)
    database, provider = services.database, open_provider(settings)
    leadership = open_leadership(settings, database, serves=serves)
    pools = pools_kept(settings)
    policies = installed_policies()
    for pool in pools.values():
        require_installed(pool, policies)
    return build_control(
        services,
        provider,
        leadership,
        pools=pools,
        scaling=policies,
        name_of=_naming(settings).name,
        environment_of=by_name_only if access is None else access.environment,
        only_plans=settings.api.safe_mode,
        replayable_for=settings.jobs.replayable_for,
    )


def build_control(
    services: Services,
    provider: Provider,
    leadership: Leadership,
    *,
    pools: Mapping[PoolId, FleetPolicy],
    name_of: Callable[[str], str],
    environment_of: Callable[[WorkerId, PoolId], Mapping[str, str]],
    scaling: Mapping[str, ScalingPolicy] = OURS,
    new_worker_id: Callable[[], WorkerId] = new_worker_id,
    new_installation_id: Callable[[], str] = new_installation_id,
    clock: Clock | None = None,
    threads: Threads | None = None,
    only_plans: bool = False,
    replayable_for: timedelta | None = None,
) -> Control:
    """Everything from outside is an argument: the simulation has a provider, a clock and threads of its own."""
    database = services.database
    observer = Observer(
        database=database,
        provider=provider,
        leadership=leadership,
        pools=pools,
        scaling=scaling,
        new_id=new_installation_id,
    )
    executor = Executor(
        services=services,
        provider=provider,
        leadership=leadership,
        new_worker_id=new_worker_id,
        name_of=name_of,
        environment_of=environment_of,
    )
    reconciler = Reconciler(
        database=database,
        leadership=leadership,
        observer=observer,
        executor=executor,
        clock=clock or SystemClock(),
        only_plans=only_plans,
        replayable_for=replayable_for,
        one_at_a_time=(threads or SystemThreads()).lock(),
    )
    return Control(leadership, reconciler, provider)


def installed_policies() -> Mapping[str, ScalingPolicy]:
    """Ours and those of plugins, by their names."""
    return {**OURS, **{each.name: each.load() for each in entry_points(group="herdsman.policies")}}


def _naming(settings: Settings) -> Naming:
    providers = settings.providers
    deployment = knobs.local_deployment(settings) if providers.provider == knobs.LOCAL else providers.deployment_id
    if deployment is None:
        raise InvalidSettings(
            "DEPLOYMENT_ID is not set: give this installation a name of its own, so that it ends no machine of another"
        )
    return Naming(settings.runpod.runpod_name_prefix, deployment)
