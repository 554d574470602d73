"""Before something is ended: a question, or only a look at what would be."""

from typing import Annotated

import typer

from herdsman.core.printable import printable_lines

Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Only say what would be done.")]


def ask_first(question: str, *, yes: bool) -> None:
    """Ends the command unless somebody agrees; where nobody can answer, nobody does."""
    if not yes:
        typer.confirm(printable_lines(question), abort=True, err=True)
