"""The options of `herdsman whatif`."""

from pathlib import Path
from typing import Annotated

import typer

from herdsman.cli.output import Output

TraceFile = Annotated[Path | None, typer.Option(help="CSV with arrival_s,service_s[,class]; gzip is fine.")]
History = Annotated[bool, typer.Option("--history", help="Replay the jobs of this database instead.")]
Cycles = Annotated[
    bool,
    typer.Option(
        "--cycles",
        help="With --history: ask again about each recorded cycle; under another policy or setting, if given.",
    ),
]
Days = Annotated[float, typer.Option(min=0.01, max=3650, help="How much of the history.")]
PoolOption = Annotated[str, typer.Option(help="Whose history, and under whose settings.")]
PolicyName = Annotated[str | None, typer.Option(help="The scaling policy; else that of your settings.")]
Compare = Annotated[list[str] | None, typer.Option(help="Another policy beside it; may be repeated.")]
Given = Annotated[
    list[str] | None, typer.Option("--set", metavar="NAME=VALUE", help="A setting; may be repeated.")
]
Sweep = Annotated[
    list[str] | None,
    typer.Option(
        metavar="NAME=A..B", help="Replay with each value, also A..B:STEP or A,B,C; may be repeated."
    ),
]
TargetWait = Annotated[
    float | None, typer.Option(min=0.001, help="TARGET_WAIT_SEC: the wait to aim at, in seconds.")
]
Price = Annotated[float, typer.Option(min=0, help="What a worker costs an hour, in USD.")]
BootTime = Annotated[float | None, typer.Option(min=0, help="How long a start takes, in seconds.")]
BootSpread = Annotated[float, typer.Option(min=0, help="How much that varies.")]
Failing = Annotated[float | None, typer.Option(min=0, max=1, help="The share of starts that fail.")]
Seed = Annotated[int, typer.Option(help="The same seed draws the same starts.")]
Png = Annotated[Path | None, typer.Option(help="Write cost against wait as a picture.")]
Html = Annotated[Path | None, typer.Option(help="Write it as a page that needs nothing else.")]
OutputOption = Annotated[Output, typer.Option("--output", "-o", help="How to print.")]
