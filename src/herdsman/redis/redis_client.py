"""Redis itself: connections, commands, and the streams of a replica as the settings want them."""

import os
import re
import secrets
import socket
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import timedelta
from typing import Any

from redis import Redis
from redis.backoff import NoBackoff
from redis.exceptions import NoPermissionError, RedisError, ResponseError, WatchError
from redis.retry import Retry

from herdsman.context import Services
from herdsman.ports import SystemClock
from herdsman.redis import streams
from herdsman.redis.bus import StreamBus
from herdsman.redis.stream_loops import Intervals, ReplicaHooks
from herdsman.settings import Settings

_SILENCE = timedelta(seconds=2)
_END = "0-0"
_MOST_PAGES = 2000
HASH_KEPT = timedelta(days=1)
END_KEPT = timedelta(minutes=1)
"""For the mirror of a job that has ended: its row says everything."""
TOLD_KEPT = timedelta(days=2)
MOST_KEPT = 10_000
"""About so many dead letters and words of control stay in their streams, which nobody has to acknowledge."""


class RedisStreams:
    """Safe to use from several threads, but `listen` belongs to one."""

    def __init__(self, url: str, names: streams.Names, consumer: str, block: timedelta = timedelta(seconds=1)) -> None:
        self.names = names
        self.consumer = consumer
        self._block = block
        self._client = connect(url, _SILENCE)
        # Its own connection: one that waits would keep the others from being served.
        self._blocking = connect(url, block + _SILENCE)

    def check(self) -> None:
        check_version(self._client)

    def disconnect(self) -> None:
        """The next word is said on a fresh connection, which may lead to another server."""
        self._client.connection_pool.disconnect(inuse_connections=False)

    def close(self) -> None:
        self._client.close()
        self._blocking.close()

    def make_group(self, stream: streams.Stream) -> bool:
        """At `0`: what came before the group is meant for it too. False when it was there."""
        try:
            with translated():
                self._client.xgroup_create(stream.name, stream.group, "0", mkstream=True)
        except streams.BusUnavailable as error:
            if "BUSYGROUP" not in str(error):
                raise
            return False
        return True

    def remove(self, stream: streams.Stream) -> None:
        with translated():
            self._client.delete(stream.name)

    def announce(self, stream: streams.Stream, hints: Sequence[streams.Hint]) -> None:
        """One entry for each, and then its mirror says so: an entry too many is better than one too few."""
        with translated(), self._client.pipeline(transaction=False) as pipe:
            for hint in hints:
                pipe.xadd(stream.name, streams.hint_fields(hint, self.consumer))
            ids = pipe.execute()
            for hint, entry_id in zip(hints, ids, strict=True):
                _reflect(pipe, streams.hint_mirror(hint, str(entry_id)))
            pipe.execute()

    def announced(self, job_ids: Sequence[str]) -> list[str | None]:
        """The version of each job that was announced last, as far as Redis remembers."""
        with translated(), self._client.pipeline(transaction=False) as pipe:
            for job_id in job_ids:
                pipe.hget(streams.job_key(job_id), "version")
            return list(pipe.execute())

    def reflect(self, mirrors: Sequence[streams.Mirror]) -> None:
        if not mirrors:
            return
        with translated(), self._client.pipeline(transaction=False) as pipe:
            for mirror in mirrors:
                _reflect(pipe, mirror)
            pipe.execute()

    def say(self, name: str, fields: Mapping[str, str]) -> None:
        """To a stream that everybody reads, and that nobody acknowledges."""
        with translated():
            self._client.xadd(name, dict(fields), maxlen=MOST_KEPT, approximate=True)

    def order(self, stream: streams.Stream, fields: Mapping[str, str]) -> None:
        """To a stream whose entries wait until somebody has acknowledged them."""
        with translated():
            self._client.xadd(stream.name, dict(fields))

    def listen(self, after: Mapping[str, str]) -> Mapping[str, streams.Read]:
        """What anybody added to these streams after these ids; empty when nothing came in time."""
        with translated():
            found = self._blocking.xread(
                dict(after), count=streams.PAGE, block=round(self._block.total_seconds() * 1000)
            )
        return {str(name): _entries(entries) for name, entries in found}

    def take(self, stream: streams.Stream) -> list[streams.Entry]:
        """Entries that no replica was given yet; they are ours from now on."""
        return self._read(stream, ">")

    def mine(self, stream: streams.Stream, after: str) -> list[streams.Entry]:
        """A page of the entries that we hold. Being read they are fresh again, so nobody takes them over."""
        return self._read(stream, after)

    def take_over(self, stream: streams.Stream, idle: timedelta) -> Iterator[list[streams.Entry]]:
        """Page by page, the entries that nobody has read for so long: they are ours from now on."""
        cursor, limit = _END, round(idle.total_seconds() * 1000)
        for _ in range(_MOST_PAGES):
            with translated():
                # Redis 7 adds a third part, entries that are gone and that it has released by itself.
                cursor, entries, *_gone = self._client.xautoclaim(
                    stream.name, stream.group, self.consumer, limit, cursor, count=streams.PAGE
                )
            yield [streams.Entry(stream, entry_id, fields) for entry_id, fields in _entries(entries)]
            if cursor == _END:
                return

    def settle(self, stream: streams.Stream, ids: Sequence[str]) -> None:
        """Acknowledged and gone, or neither."""
        if not ids:
            return
        with translated(), self._client.pipeline(transaction=True) as pipe:
            pipe.xack(stream.name, stream.group, *ids)
            pipe.xdel(stream.name, *ids)
            pipe.execute()

    def add_dead_letters(self, letters: Sequence[streams.DeadLetter]) -> int:
        """Announces those that were not yet; each with the end of its entry, or neither. How many were new."""
        names, new, known = self.names, 0, set[str]()
        keys = [names.announced_key(each.job_id, each.version) for each in letters if each.version is not None]
        try:
            with translated(), self._client.pipeline(transaction=True) as pipe:
                if keys:
                    pipe.watch(*keys)  # from now on nobody may add one behind our back
                    known = {key for key, mark in zip(keys, pipe.mget(keys), strict=True) if mark is not None}
                pipe.multi()
                for letter in letters:
                    key = None if letter.version is None else names.announced_key(letter.job_id, letter.version)
                    if key is None or key not in known:
                        new += 1
                        pipe.xadd(names.dead, letter.fields(), maxlen=MOST_KEPT, approximate=True)
                        if key is not None:
                            pipe.set(key, "1", ex=TOLD_KEPT)
                            known.add(key)
                    if letter.entry is not None:
                        stream = letter.entry.stream
                        pipe.xack(stream.name, stream.group, letter.entry.id)
                        pipe.xdel(stream.name, letter.entry.id)
                pipe.execute()
        except WatchError:  # another replica did it in this very moment; the entries are read again
            return 0
        return new

    def trim(self, stream: streams.Stream) -> None:
        """Removes what every group has been given and acknowledged, and never what somebody still holds (S4)."""
        with suppress(streams.GroupMissing), translated():
            floors: list[tuple[int, int]] = []
            for group in self._client.xinfo_groups(stream.name):
                if group["pending"]:
                    floors.append(_number(self._client.xpending(stream.name, group["name"])["min"]))
                else:
                    ms, number = _number(group["last-delivered-id"])
                    floors.append((ms, number + 1))
            if floors:
                ms, number = min(floors)
                self._client.xtrim(stream.name, minid=f"{ms}-{number}", approximate=False)

    def forget_consumers(self, stream: streams.Stream, idle: timedelta) -> None:
        """Those that hold nothing and have said nothing for so long: with what one holds, its name is kept."""
        with suppress(streams.GroupMissing), translated():
            for each in self._client.xinfo_consumers(stream.name, stream.group):
                silent = each["idle"] > idle.total_seconds() * 1000 and each["pending"] == 0
                if silent and each["name"] != self.consumer:
                    self._client.xgroup_delconsumer(stream.name, stream.group, each["name"])

    def size(self, stream: streams.Stream) -> streams.Size:
        with translated():
            length = int(self._client.xlen(stream.name))
            found = self._client.xpending(stream.name, stream.group)
        held = {each["name"]: int(each["pending"]) for each in found["consumers"] or ()}
        return streams.Size(length, int(found["pending"]), held.get(self.consumer, 0))

    def length(self, name: str) -> int:
        with translated():
            return int(self._client.xlen(name))

    def _read(self, stream: streams.Stream, after: str) -> list[streams.Entry]:
        with translated():
            found = self._client.xreadgroup(stream.group, self.consumer, {stream.name: after}, count=streams.PAGE)
        pages = [entries for _, entries in found]
        return [streams.Entry(stream, entry_id, fields) for page in pages for entry_id, fields in _entries(page)]


def _reflect(pipe: Any, mirror: streams.Mirror) -> None:
    pipe.hset(streams.job_key(mirror.job_id), mapping=dict(mirror.fields))
    pipe.expire(streams.job_key(mirror.job_id), END_KEPT if mirror.ended else HASH_KEPT)


def _entries(found: Any) -> list[tuple[str, Mapping[str, str]]]:
    """Redis 6 shows an entry that is gone as nothing at all."""
    return [(str(entry_id), fields or {}) for entry_id, fields in found if entry_id is not None]


def _number(entry_id: str) -> tuple[int, int]:
    ms, _, number = entry_id.partition("-")
    return int(ms), int(number)


OLDEST = (6, 2)
"""XAUTOCLAIM and trimming by id came with it."""
CONNECTING = timedelta(seconds=1)


def connect(url: str, silence: timedelta) -> Any:
    """A client that gives up after `silence`. The library would repeat an XADD whose answer was lost."""
    opened: Any = Redis.from_url(  # pyright: ignore[reportUnknownMemberType]
        url,
        protocol=2,  # the same form of answers from every version of the library
        decode_responses=True,
        encoding_errors="replace",
        retry=Retry(NoBackoff(), 0),
        socket_timeout=silence.total_seconds(),
        socket_connect_timeout=CONNECTING.total_seconds(),
        socket_keepalive=True,
    )
    return opened


def check_version(client: Any) -> None:
    """`BusUnavailable` names the version that is needed. An account that may not ask is believed."""
    try:
        with translated():
            said = str(client.info("server").get("redis_version", ""))
    except streams.NotAllowed:
        return
    numbers = tuple(int(each) for each in re.findall(r"\d+", said)[:2])
    if numbers and numbers < OLDEST:
        raise streams.BusUnavailable(f"Redis {said} is too old: 6.2 or newer is needed")


@contextmanager
def translated() -> Generator[None]:
    """Messages of the client name the address and never the password."""
    try:
        yield
    except WatchError:  # no fault: somebody else was quicker
        raise
    except ResponseError as error:
        said, kind = str(error), streams.BusUnavailable
        if said.startswith("NOGROUP") or "no such key" in said:
            kind = streams.GroupMissing
        elif "exhausted the last possible ID" in said:
            kind = streams.StreamSpent
        elif isinstance(error, NoPermissionError):
            kind = streams.NotAllowed
        raise kind(f"Redis refuses: {type(error).__name__}: {error}") from error
    except (RedisError, OSError) as error:
        raise streams.BusUnavailable(f"Redis does not answer: {type(error).__name__}: {error}") from error


def open_streams(settings: Settings, services: Services, around: ReplicaHooks) -> StreamBus:
    """Redis is not asked anything yet, and may be away."""
    chosen = settings.streams
    assert chosen.redis_url is not None, "there is no Redis without REDIS_URL"
    consumer = f"{socket.gethostname()}:{os.getpid()}:{secrets.token_hex(4)}"
    redis = RedisStreams(chosen.redis_url.get_secret_value(), streams.Names(chosen.orch_stream_prefix), consumer)
    rhythm = Intervals(
        claim_idle=timedelta(milliseconds=chosen.orch_claim_idle_ms),
        reclaim=timedelta(seconds=chosen.orch_reclaim_interval_s),
        resync=timedelta(seconds=chosen.stream_resync_sec),
    )
    # In safe mode nobody but workers changes anything.
    ingests = chosen.orch_ingest and not settings.api.safe_mode
    agent = chosen.orch_ingest_agent if ingests else None
    return StreamBus(redis, services, SystemClock(), around, rhythm, ingest_agent=agent)
