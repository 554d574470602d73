"""The reference page of the settings and the example of a `.env` file, written from the settings themselves.

`python -m scripts.settings_reference` writes both again.
"""

from pathlib import Path
from typing import cast

from herdsman.settings.model import CATALOGUE, Setting, Settings, groups
from herdsman.settings.relations import RELATIONS

_INTRODUCTION = """\
# Settings

<!-- Written by `python -m scripts.settings_reference`; change the descriptions in `src/herdsman/settings`. -->

Herdsman looks for each setting in the environment, then in `.env` in the working directory, then in
`herdsman.toml` (or the file that `HERDSMAN_CONFIG` names), and uses the default if nobody set it. A variable
that is set to nothing counts as not set.

Every variable may also be typed with the prefix `HERDSMAN_`, and that spelling wins. A variable with the
prefix that names no setting is an error. In `herdsman.toml` the names are in small letters, at the top or in
a table named after the group, and an unknown one is an error:

```toml
min_active_gpus = 3

[jobs]
max_attempts = 5
```

A secret, or a URL that may hold a password, can be kept in a file: set the name with `_FILE` behind it to the
path of that file. `herdsman config` shows every value and where it came from, but never a secret.
"""

_FITTING = """
## What has to fit together

Nothing starts while one of these does not hold; for advice there is a warning instead.
`herdsman config --explain` shows them with your numbers.

| relation | why |
|---|---|
"""


def reference_page() -> str:
    page = [_INTRODUCTION]
    for group, model in groups().items():
        page.append(f"\n## {group}\n\n{model.__doc__}\n\n| variable | default | what it is |\n|---|---|---|\n")
        for each in (setting for setting in CATALOGUE.values() if setting.group == group):
            typed = typed_default(each)
            default = each.default_text or (f"`{typed}`" if typed else "not set")
            page.append(f"| `{each.name}` | {default} | {each.description} |\n")
    page.append(_FITTING)
    for relation in RELATIONS:
        unless = f", unless {relation.unless}" if relation.unless else ""
        advice = "" if relation.required else " (advice)"
        page.append(f"| `{relation.text}`{unless}{advice} | {relation.reason} |\n")
    return "".join(page)


def write(root: Path) -> None:
    (root / "docs" / "reference" / "settings.md").write_text(reference_page(), encoding="utf-8")
    (root / ".env.example").write_text(env_example(), encoding="utf-8")


_EXAMPLE_HEAD = """\
# Copy this file to .env and take the # away from the lines that you want to change.
# Each line shows the default. docs/reference/settings.md says more.

# Configuration file to read after this one.
# HERDSMAN_CONFIG=herdsman.toml
"""


def env_example() -> str:
    text = [_EXAMPLE_HEAD]
    for group, model in groups().items():
        text.append(f"\n# --- {group}: {model.__doc__}\n")
        for each in (setting for setting in CATALOGUE.values() if setting.group == group):
            comment = f" Default: {each.default_text}." if each.default_text else ""
            by_file = f"# {each.file_name}=\n" if each.file_name else ""
            text.append(f"\n# {each.description}{comment}\n# {each.name}={typed_default(each)}\n{by_file}")
    return "".join(text)


def typed_default(setting: Setting) -> str:
    """The default as a person would type it; nothing if there is none, or if it depends on something."""
    default = setting.default(Settings())
    if setting.default_text or default is None or setting.kind.secret:
        return ""
    if isinstance(default, tuple):
        return ",".join(str(part) for part in cast("tuple[object, ...]", default))
    text = str(setting.kind.shown(default))
    return text.lower() if isinstance(default, bool) else text


if __name__ == "__main__":
    write(Path.cwd())
