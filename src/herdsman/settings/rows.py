"""Settings as anyone may see them: each value with its default, its origin and what it is for."""

from dataclasses import dataclass

from herdsman.settings.catalogue import CATALOGUE, Setting
from herdsman.settings.model import Origin, Settings


@dataclass(frozen=True, slots=True)
class Row:
    name: str
    group: str
    value: object
    default: object
    origin: Origin
    description: str


def rows(settings: Settings) -> tuple[Row, ...]:
    """One row for each setting, group by group; secrets are hidden, and passwords in URLs replaced."""
    return tuple(_row(setting, settings) for setting in CATALOGUE.values())


def _row(setting: Setting, settings: Settings) -> Row:
    return Row(
        name=setting.name,
        group=setting.group,
        value=setting.kind.shown(setting.value(settings)),
        default=setting.kind.shown(setting.default(settings)),
        origin=settings.origin(setting.name),
        description=setting.description,
    )
