"""From what was found to one group of settings, or to sentences on what is wrong with it."""

from collections.abc import Iterator, Mapping

from pydantic import ValidationError

from herdsman.settings.catalogue import CATALOGUE, Setting
from herdsman.settings.group import Group
from herdsman.settings.sources import Found

_LONGEST_SHOWN = 80


def build(name: str, group: type[Group], found: Mapping[str, Found]) -> Group | tuple[str, ...]:
    """The group, or its problems."""
    members = [each for each in CATALOGUE.values() if each.group == name and each.name in found]
    try:
        return group.model_validate({each.key: found[each.name].value for each in members})
    except ValidationError as error:
        return tuple(_sentences(error, members, found))


def _sentences(error: ValidationError, members: list[Setting], found: Mapping[str, Found]) -> Iterator[str]:
    """One for each value that was refused: a default that waits for it is refused too, but is no news."""
    refused = {str(detail["loc"][0]) for detail in error.errors(include_input=False, include_context=False)}
    for setting in members:
        if setting.key in refused:
            here = found[setting.name]
            shown = _clip(setting.kind.shown(here.value))
            yield f"{here.spelled} must be {setting.kind.allowed}, but is {shown} in {here.where}."


def _clip(value: object) -> str:
    text = str(value)
    text = text if text.isprintable() else ascii(text)
    return text if len(text) <= _LONGEST_SHOWN else f"{text[:_LONGEST_SHOWN]}..."
