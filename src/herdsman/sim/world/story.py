"""What happened in a world, step by step: the same seed tells the same story."""

from collections import Counter
from dataclasses import dataclass, field
from hashlib import sha256

Step = tuple[float, str, str]


@dataclass
class Story:
    steps: list[Step] = field(default_factory=list[Step])
    """When, who, and what."""
    notes: Counter[str] = field(default_factory=Counter[str])
    """How often each rare situation occurred."""

    def tell(self, at: float, who: str, what: str) -> None:
        self.steps.append((at, who, what))

    def hash(self) -> str:
        whole = "\n".join(f"{at!r} {who} {what}" for at, who, what in self.steps)
        return sha256(whole.encode()).hexdigest()[:16]

    def last(self, number: int) -> list[str]:
        return [
            f"{at:9.3f}  {who:<14} {what}" for at, who, what in self.steps[max(0, len(self.steps) - number) :]
        ]
