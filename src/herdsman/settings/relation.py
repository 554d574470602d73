"""A relation between settings: something that can be checked, and said with the numbers in it."""

import re
from collections.abc import Callable
from dataclasses import dataclass

from herdsman.settings.catalogue import CATALOGUE
from herdsman.settings.model import Settings

_NAME = re.compile(r"\b[A-Z][A-Z0-9]*(?:_[A-Z0-9]+)+\b")


@dataclass(frozen=True, slots=True, kw_only=True)
class Relation:
    name: str
    left: str
    op: str
    right: str
    check: Callable[[Settings], bool]
    why: str
    unless: str = ""
    """When the relation does not matter, in words; `check` knows it too."""
    required: bool = True
    """Whether a start is refused when it does not hold; otherwise it is advice."""

    @property
    def text(self) -> str:
        return f"{self.left} {self.op} {self.right}"

    @property
    def reason(self) -> str:
        """The reason as a sentence of its own."""
        return self.why[0].upper() + self.why[1:]

    def numbers(self, settings: Settings) -> str:
        return _NAME.sub(lambda name: _number(name[0], settings), self.text)

    def sentence(self, settings: Settings) -> str:
        """What does not hold: each name with its value and where it came from, and why it matters."""

        def tell(name: re.Match[str]) -> str:
            return f"{name[0]} ({_number(name[0], settings)}, {settings.origin(name[0])})"

        left, right = _NAME.sub(tell, self.left), _NAME.sub(tell, self.right)
        must = "must" if self.required else "should"
        return f"{left} {must} be {self.op} {right}: {self.why}"


def _number(name: str, settings: Settings) -> str:
    setting = CATALOGUE[name]
    return str(setting.kind.shown(setting.value(settings)))
