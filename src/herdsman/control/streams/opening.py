"""The streams of a replica as the settings want them."""

import os
import secrets
import socket
from datetime import timedelta

from herdsman.bus.names import Names
from herdsman.bus.redis_streams import RedisStreams
from herdsman.control.services import Services
from herdsman.control.streams.bus import StreamBus
from herdsman.control.streams.keeper import Rhythm
from herdsman.control.streams.surroundings import Surroundings
from herdsman.ports import SystemClock
from herdsman.settings import Settings


def open_streams(settings: Settings, services: Services, around: Surroundings) -> StreamBus:
    """Redis is not asked anything yet, and may be away."""
    chosen = settings.streams
    assert chosen.redis_url is not None, "there is no Redis without REDIS_URL"
    consumer = f"{socket.gethostname()}:{os.getpid()}:{secrets.token_hex(4)}"
    redis = RedisStreams(chosen.redis_url.get_secret_value(), Names(chosen.orch_stream_prefix), consumer)
    rhythm = Rhythm(
        claim_idle=timedelta(milliseconds=chosen.orch_claim_idle_ms),
        reclaim=timedelta(seconds=chosen.orch_reclaim_interval_s),
        resync=timedelta(seconds=chosen.stream_resync_sec),
    )
    # In safe mode nobody but workers changes anything.
    ingests = chosen.orch_ingest and not settings.api.safe_mode
    agent = chosen.orch_ingest_agent if ingests else None
    return StreamBus(redis, services, SystemClock(), around, rhythm, ingest_agent=agent)
