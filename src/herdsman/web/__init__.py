"""HTTP to others: who may be reached, and one exchange within limits."""

from herdsman.web.exchange import NEVER_SENT, Endless, Oversized, sent, whole
from herdsman.web.guard import MOST_REDIRECTS, Gate, guarded_client, refusal

__all__ = [
    "MOST_REDIRECTS",
    "NEVER_SENT",
    "Endless",
    "Gate",
    "Oversized",
    "guarded_client",
    "refusal",
    "sent",
    "whole",
]
