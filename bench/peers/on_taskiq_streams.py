"""taskiq on Redis streams, which it recommends: a hundred jobs are read at once, and each is confirmed when done."""
# pyright: basic, reportMissingImports=false

from functools import partial

from taskiq_redis import RedisStreamBroker

from bench.peers import on_taskiq

# From the beginning: the group of readers is made after the jobs.
_open = partial(RedisStreamBroker, consumer_id="0")

fill = partial(on_taskiq.fill, broker=_open)
submitter = partial(on_taskiq.submitter, broker=_open)
flooder = partial(on_taskiq.flooder, broker=_open)
work = partial(on_taskiq.work, broker=_open)
