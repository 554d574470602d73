"""What every thread of this process is doing at this moment."""

import sys
import threading
import traceback

LONGEST = 200_000


def all_stacks() -> str:
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    parts: list[str] = []
    for ident, frame in sys._current_frames().items():  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]  the only way
        lines = "".join(traceback.format_stack(frame))
        parts.append(f"Thread {names.get(ident, 'unknown')} ({ident}), most recent call last:\n{lines}")
    return "\n".join(parts)[:LONGEST]
