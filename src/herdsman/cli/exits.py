"""Exit statuses, the same for every command."""

from herdsman.cli.server import VersionMismatch
from herdsman.core.errors import (
    Conflict,
    Forbidden,
    HerdsmanError,
    InvalidRequest,
    NotFound,
    ProviderRejected,
    ProviderUnavailable,
    StaleWrite,
    StoreMisconfigured,
    StoreUnavailable,
    TooMany,
    Unauthenticated,
    Unreachable,
)

EXIT_CODES: tuple[tuple[type[HerdsmanError], int], ...] = (
    (InvalidRequest, 2),  # as for a wrong option
    (NotFound, 3),
    (Conflict, 4),
    (StaleWrite, 4),
    (TooMany, 5),
    (Unreachable, 5),
    (StoreUnavailable, 5),
    (ProviderUnavailable, 5),
    (StoreMisconfigured, 6),
    (ProviderRejected, 6),
    (Unauthenticated, 8),
    (Forbidden, 8),
    (VersionMismatch, 9),
)


def exit_code(error: HerdsmanError) -> int:
    return next((code for kind, code in EXIT_CODES if isinstance(error, kind)), 1)
