"""What the parts of a door to a server have in common: they ask through the whole of it."""

from abc import ABC, abstractmethod
from typing import TypeVar

from herdsman.client.call import Call

T = TypeVar("T")


class Asking(ABC):
    @abstractmethod
    def _ask(self, call: Call[T]) -> T: ...
