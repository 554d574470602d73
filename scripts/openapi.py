"""The description of the API and the table of rights, written from the app itself.

`python -m scripts.openapi` writes them again, from the root of the repository.
"""

import json
from pathlib import Path
from typing import Any

from fastapi import FastAPI

from herdsman.access.rules import Role
from herdsman.server.access import MATRIX, OPEN
from herdsman.server.app import described

BEGIN, END = "<!-- rights: begin -->", "<!-- rights: end -->"
ACCESS_PAGE = Path("docs/reference/api-access.md")
OPENAPI_FILE = Path("docs/reference/openapi.json")


def openapi_text(app: FastAPI | None = None) -> str:
    shown: dict[str, Any] = (app or described()).openapi()
    # The version rises with every release and says nothing about the routes.
    shown = {**shown, "info": {**shown["info"], "version": "0"}}
    return f"{json.dumps(shown, indent=1, sort_keys=True, ensure_ascii=False)}\n"


def rights_table() -> str:
    head = f"| route | {' | '.join(Role)} |\n|---|{'---|' * len(Role)}\n"
    rows: list[str] = []
    for line in sorted(MATRIX, key=lambda line: (line[1], line[0])):
        mark = "open" if line in OPEN else "yes"
        cells = (mark if role in MATRIX[line] else "" for role in Role)
        rows.append(f"| {line[0]} {line[1]} | {' | '.join(cells)} |\n")
    return head + "".join(rows)


def with_rights(page: str) -> str:
    """The page with its table as it must be."""
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    assert rest, f"the page lacks {BEGIN}"
    return f"{before}{BEGIN}\n{rights_table()}{END}{after}"


def write(root: Path) -> None:
    (root / OPENAPI_FILE).write_text(openapi_text(), encoding="utf-8")
    page = root / ACCESS_PAGE
    page.write_text(with_rights(page.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    write(Path.cwd())
