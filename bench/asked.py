"""What the benchmarks beside peers are asked on the command line, and how they answer."""

import argparse
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

from bench.peers.catalogue import peers
from bench.peers.peer import Peer, PeerFailed

T = TypeVar("T")


def parser(about: str | None) -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument("--quick", action="store_true", help="small numbers, to see that it works")
    made.add_argument("--write", type=Path, help="where to keep the table as well")
    return made


def with_peers(made: argparse.ArgumentParser) -> argparse.ArgumentParser:
    made.add_argument("--peers-python", default=sys.executable, help="a Python that has the peers")
    made.add_argument("--arq-python", default=sys.executable, help="a Python that has arq")
    made.add_argument("--only", type=_names, help="parts of the names of those that are measured")
    return made


def _names(text: str) -> list[str]:
    return [name.strip() for name in text.split(";")]


def chosen(asked: argparse.Namespace, ours: Sequence[Peer], names: Sequence[str]) -> list[Peer]:
    """Ours and the peers of these names, but for those that were not asked for."""
    known = peers(python=asked.peers_python, arq_python=asked.arq_python)
    everyone = [*ours, *(known[name] for name in names)]
    return [peer for peer in everyone if not asked.only or any(part in peer.name for part in asked.only)]


def versions_of(everyone: Sequence[Peer]) -> Mapping[str, str]:
    """Of those that are installed."""
    found: dict[str, str] = {}
    for peer in everyone:
        try:
            found[peer.name] = peer.version()
        except PeerFailed:
            continue
    return found


def measured(
    everyone: Sequence[Peer], versions: Mapping[str, str], measure: Callable[[Peer], T]
) -> dict[str, T | None]:
    """None for a peer that is not installed."""
    found: dict[str, T | None] = {}
    for peer in everyone:
        say(peer.name if peer.name in versions else f"{peer.name}: not installed")
        found[peer.name] = measure(peer) if peer.name in versions else None
    return found


def say(words: str) -> None:
    print(words, file=sys.stderr, flush=True)
