"""A bucket of tokens: each job takes one, and they come back at a steady rate up to a brim."""

from dataclasses import dataclass
from datetime import datetime, timedelta

SET_BACK = timedelta(minutes=1)
"""A clock that is further back than this was set back; less is another transaction that got the lock first."""
_ALMOST = 1e-6
"""What floating point may lose on the way; of a token."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bucket:
    tokens: float
    """Below zero when jobs were put off: they have their tokens in advance."""
    filled_at: datetime


def refilled(bucket: Bucket, rate: float, brim: int, now: datetime) -> Bucket:
    """As full as it is now. In any span of time no more tokens come back than `rate` gives (T2).

    A clock that was set back gives nothing for the time that it repeats, and goes on from there.
    """
    if now <= bucket.filled_at:
        back = bucket.filled_at - now > SET_BACK
        return Bucket(tokens=min(bucket.tokens, brim), filled_at=now if back else bucket.filled_at)
    gained = (now - bucket.filled_at).total_seconds() * rate
    return Bucket(tokens=min(float(brim), bucket.tokens + gained), filled_at=now)


def wait_for(bucket: Bucket, rate: float, tokens: int) -> timedelta:
    """Until so many are there; zero when they are."""
    lacking = tokens - bucket.tokens
    return timedelta(0) if lacking <= _ALMOST else timedelta(seconds=lacking / rate)
