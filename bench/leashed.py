"""The `herdsman` command in a process that ends with the one that started it: `python -m bench.leashed PARENT WORDS`."""

import sys

from herdsman.cli.main import main
from herdsman.worker.handler_main import die_with

if __name__ == "__main__":
    die_with(int(sys.argv.pop(1)))
    main()
