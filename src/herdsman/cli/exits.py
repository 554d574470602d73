"""Exit statuses, the same for every command."""

from herdsman.core.errors import (
    Conflict,
    HerdsmanError,
    InvalidRequest,
    NotFound,
    ProviderRejected,
    ProviderUnavailable,
    StaleWrite,
    StoreMisconfigured,
    StoreUnavailable,
)

EXIT_CODES: tuple[tuple[type[HerdsmanError], int], ...] = (
    (InvalidRequest, 2),  # as for a wrong option
    (NotFound, 3),
    (Conflict, 4),
    (StaleWrite, 4),
    (StoreUnavailable, 5),
    (ProviderUnavailable, 5),
    (StoreMisconfigured, 6),
    (ProviderRejected, 6),
)


def exit_code(error: HerdsmanError) -> int:
    return next((code for kind, code in EXIT_CODES if isinstance(error, kind)), 1)
