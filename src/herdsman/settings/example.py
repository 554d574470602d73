"""An example of a `.env` file: every name with its default, as comments."""

from typing import cast

from herdsman.settings.catalogue import CATALOGUE, Setting, groups
from herdsman.settings.model import Settings

_INTRODUCTION = """\
# Copy this file to .env and take the # away from the lines that you want to change.
# Each line shows the default. docs/reference/settings.md says more.

# Configuration file to read after this one.
# HERDSMAN_CONFIG=herdsman.toml
"""


def env_example() -> str:
    return _INTRODUCTION + "".join(_section(group) for group in groups())


def _section(group: str) -> str:
    members = (each for each in CATALOGUE.values() if each.group == group)
    return f"\n# --- {group}: {groups()[group].__doc__}\n" + "".join(_lines(each) for each in members)


def _lines(setting: Setting) -> str:
    comment = f" Default: {setting.default_text}." if setting.default_text else ""
    by_file = f"# {setting.file_name}=\n" if setting.file_name else ""
    return f"\n# {setting.description}{comment}\n# {setting.name}={typed_default(setting)}\n{by_file}"


def typed_default(setting: Setting) -> str:
    """The default as a person would type it; nothing if there is none, or if it depends on something."""
    default = setting.default(Settings())
    if setting.default_text or default is None or setting.kind.secret:
        return ""
    if isinstance(default, tuple):
        return ",".join(str(part) for part in cast("tuple[object, ...]", default))
    text = str(setting.kind.shown(default))
    return text.lower() if isinstance(default, bool) else text
