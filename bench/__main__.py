"""Runs the benchmarks one after the other: `python -m bench`, or `make bench`.

It ends with 1 when a ratio has fallen by a third against the committed table, and with 2 when other programs used the
machine meanwhile, so that nothing was learnt. `--write` keeps the tables in `bench/results`.
"""

import argparse
import subprocess
import sys

from bench.aims import RESULTS

BESIDE_PEERS = ("drain", "dispatch")
ALONE = ("api", "claims", "growth", "size", "startup")


def main() -> int:
    made = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument("--quick", action="store_true", help="small numbers, to see that it works")
    made.add_argument("--write", action="store_true", help="keep the tables")
    made.add_argument("--peers-python", default=sys.executable, help="a Python that has the peers")
    asked = made.parse_args()
    ended: dict[str, int] = {}
    for name in (*BESIDE_PEERS, *ALONE):
        words = [sys.executable, "-m", f"bench.{name}", *(["--quick"] if asked.quick else [])]
        if asked.write:
            words += ["--write", str(RESULTS / f"{name}.md")]
        if name in BESIDE_PEERS:
            words += ["--peers-python", asked.peers_python]
        ended[name] = subprocess.run(words, check=False).returncode
    for name, status in ended.items():
        print(f"{name}: {_WORDS.get(status, f'broke off with {status}')}", file=sys.stderr)
    return max(ended.values())


_WORDS = {0: "measured", 1: "a ratio has fallen, or it broke off", 2: "refused, the machine was not ours"}


if __name__ == "__main__":
    sys.exit(main())
