"""Is a pool one that we can keep? Every refusal names the field, the value and the rule."""

from datetime import timedelta

from herdsman.core.errors import InvalidRequest
from herdsman.core.pools import NewPool, PoolRules, Serves
from herdsman.core.request import LONGEST, check_model, check_name
from herdsman.core.schedule import MOST_WINDOWS, Schedule, check_sizes, check_window

MOST_WORKERS = 64
MOST_PRELOADS = 64
LONGEST_HOLD = timedelta(hours=2)
LONGEST_SPAN = timedelta(days=365)


def check_pool(new: NewPool) -> None:
    if new.pool_id is not None:
        check_name("pool_id", new.pool_id)
    check_name("agent_name", new.agent, LONGEST["agent"])
    check_serves(new.serves)
    check_size("desired_workers", new.desired_workers)
    _check_span("hold_seconds", new.hold, LONGEST_HOLD)
    _check_rules(new.rules)
    most = new.rules.max_workers
    if most is not None and most < max(new.desired_workers, new.rules.min_workers):
        raise InvalidRequest(
            f"max_workers is {most}, less than desired_workers ({new.desired_workers})"
            f" or min_workers ({new.rules.min_workers}): raise it"
        )


def check_serves(serves: Serves) -> None:
    for field, value in (("model_id", serves.model), ("adapter", serves.adapter)):
        if value is not None:
            check_model(field, value)
    if serves.variant is not None:
        check_name("variant", serves.variant)


def check_size(field: str, value: int) -> None:
    if not 0 <= value <= MOST_WORKERS:
        raise InvalidRequest(f"{field} is {value}: it must be from 0 to {MOST_WORKERS}")


def _check_rules(rules: PoolRules) -> None:
    check_size("min_workers", rules.min_workers)
    for field, value in (("max_workers", rules.max_workers), ("warm_buffer", rules.warm_buffer)):
        if value is not None:
            check_size(field, value)
    for field, span in (
        ("idle_timeout_seconds", rules.idle_timeout),
        ("max_lifetime_seconds", rules.max_lifetime),
    ):
        if span is not None:
            _check_span(field, span, LONGEST_SPAN)
    if len(rules.preload) > MOST_PRELOADS:
        raise InvalidRequest(f"{len(rules.preload)} models are to be preloaded, the limit is {MOST_PRELOADS}")
    for model in rules.preload:
        check_model("preload", model)
    _check_schedule(rules.schedule)


def _check_schedule(schedule: Schedule) -> None:
    if len(schedule.windows) > MOST_WINDOWS:
        raise InvalidRequest(f"the schedule has {len(schedule.windows)} windows, the limit is {MOST_WINDOWS}")
    check_sizes(schedule.outside)
    for window in schedule.windows:
        check_window(window)
        for size in (window.sizes.least, window.sizes.most):
            if size is not None:
                check_size("a size of the schedule", size)


def _check_span(field: str, span: timedelta, longest: timedelta) -> None:
    if not timedelta(0) < span <= longest:
        raise InvalidRequest(
            f"{field} is {span.total_seconds():g}: it must be more than 0 and at most {longest.total_seconds():g}"
        )
