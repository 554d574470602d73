"""Every setting by name, read off the models."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from pydantic.fields import FieldInfo

from herdsman.settings.group import Group
from herdsman.settings.kinds import DefaultText, Kind
from herdsman.settings.model import Settings


@dataclass(frozen=True, slots=True)
class Setting:
    name: str
    """In capitals, as a person types it."""
    group: str
    field: FieldInfo
    kind: Kind

    @property
    def key(self) -> str:
        """The name of the field, and of the key in the file."""
        return self.name.lower()

    @property
    def file_name(self) -> str | None:
        """The variable that names a file with the value in it; only secrets have one."""
        return f"{self.name}_FILE" if self.kind.secret else None

    @property
    def description(self) -> str:
        return self.field.description or ""

    def value(self, settings: Settings) -> object:
        return getattr(getattr(settings, self.group), self.key)

    def default(self, settings: Settings) -> object:
        """What the value would be if it were not set; some defaults follow another setting."""
        values = dict(getattr(settings, self.group))
        return self.field.get_default(call_default_factory=True, validated_data=values)

    @property
    def default_text(self) -> str | None:
        return next((mark.text for mark in self.field.metadata if isinstance(mark, DefaultText)), None)


def groups() -> Mapping[str, type[Group]]:
    found = ((name, field.annotation) for name, field in Settings.model_fields.items())
    return {name: kind for name, kind in found if isinstance(kind, type) and issubclass(kind, Group)}


def _every_setting() -> Iterator[Setting]:
    for group, model in groups().items():
        for key, field in model.model_fields.items():
            kind = next(mark for mark in field.metadata if isinstance(mark, Kind))
            yield Setting(key.upper(), group, field, kind)


CATALOGUE: Mapping[str, Setting] = MappingProxyType({each.name: each for each in _every_setting()})
