"""Cost against wait as a picture: a PNG where matplotlib is installed, and a page that needs nothing else."""

import html
import math
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from pathlib import Path
from string import Template
from typing import Any

from herdsman.errors import InvalidRequest
from herdsman.whatif.outcome import Outcome, worthwhile

WIDTH, HEIGHT, MARGIN = 860, 520, 70
"""Of the drawing in `picture.html`."""
COLOURS = ("#1f6f8b", "#c8553d", "#588b8b", "#8a5a83", "#b8860b", "#3d5a80", "#6a994e", "#bc4749")


def can_draw() -> bool:
    return find_spec("matplotlib") is not None


def require_place(png: Path | None, page: Path | None) -> None:
    """Said before a replay, which may take minutes."""
    if png is not None and not can_draw():
        raise InvalidRequest("a PNG needs the package matplotlib: install herdsman[sim], or ask for --html only")
    for path in (png, page):
        if path is not None:
            there = path.exists()
            _written(path, lambda path=path: path.open("ab").close())
            if not there:
                path.unlink()


def _sides(found: Sequence[Outcome]) -> list[bool]:
    """Whether the name of each stands above its dot: of two that are near each other, the upper one's does."""
    hours = max((each.gpu_hours for each in found), default=1.0) or 1.0
    waits = max((math.log1p(each.wait_p95_s) for each in found), default=1.0) or 1.0
    places = [(each.gpu_hours / hours, math.log1p(each.wait_p95_s) / waits) for each in found]

    def above(number: int) -> bool:
        others = [each for at, each in enumerate(places) if at != number]
        nearest = min(others, key=lambda each: math.dist(each, places[number]), default=(0.0, 0.0))
        return places[number][1] >= nearest[1] or not places[number][1]  # below it there is no room

    return [above(number) for number in range(len(found))]


def write_png(path: Path, found: Sequence[Outcome], title: str, bound: Outcome | None = None) -> None:
    """Through those that are worth their cost goes a line; `bound` is shown beside them, for nobody gets there."""
    require_place(path, None)
    from matplotlib.figure import Figure  # noqa: PLC0415  (an optional package, and slow to load)

    figure: Any = Figure(figsize=(9, 5.5), layout="constrained")
    axes: Any = figure.add_subplot()
    front = worthwhile(found)
    axes.plot([each.gpu_hours for each in front], [each.wait_p95_s for each in front], color="#999999", zorder=1)
    shown = [*found, bound] if bound else found
    for number, (each, above) in enumerate(zip(shown, _sides(shown), strict=True)):
        colour = COLOURS[number % len(COLOURS)]
        face = "none" if each is bound else colour
        axes.scatter(each.gpu_hours, each.wait_p95_s, edgecolors=colour, facecolors=face, zorder=2)
        axes.annotate(
            each.name,
            (each.gpu_hours, each.wait_p95_s),
            (5, 5 if above else -11),
            textcoords="offset points",
            fontsize=8,
            parse_math=False,
        )
    axes.set_xlabel("GPU-hours")
    axes.set_ylabel("95 of 100 jobs wait at most, seconds")
    axes.set_yscale("symlog", linthresh=10)
    axes.set_ylim(bottom=0)
    axes.margins(x=0.15)
    axes.set_title(title, parse_math=False)
    _written(path, lambda: figure.savefig(path, dpi=120, format="png"))


def write_html(path: Path, found: Sequence[Outcome], title: str, said: str, bound: Outcome | None = None) -> None:
    """One file, nothing loaded from anywhere."""
    _written(path, lambda: path.write_text(page(found, title, said, bound), encoding="utf-8"))


def page(found: Sequence[Outcome], title: str, said: str, bound: Outcome | None = None) -> str:
    shown = [*found, bound] if bound else found
    rows = "".join(
        f"<tr><td>{html.escape(each.name)}</td><td>{each.gpu_hours:.1f}</td><td>{each.cost_usd:.2f}</td>"
        f"<td>{each.wait_p50_s:.0f}</td><td>{each.wait_p95_s:.0f}</td><td>{each.wait_p99_s:.0f}</td>"
        f"<td>{each.utilisation:.0%}</td><td>{each.spawns}</td><td>{each.cap_hits}</td></tr>"
        for each in shown
    )
    most_hours = max((each.gpu_hours for each in shown), default=1.0) or 1.0
    most_wait = math.log1p(max((each.wait_p95_s for each in shown), default=1.0)) or 1.0

    def place(each: Outcome) -> tuple[float, float]:
        across = MARGIN + (WIDTH - 2 * MARGIN) * each.gpu_hours / most_hours
        return across, HEIGHT - MARGIN - (HEIGHT - 2 * MARGIN) * math.log1p(each.wait_p95_s) / most_wait

    dots: list[str] = []
    for at, (each, above) in enumerate(zip(shown, _sides(shown), strict=True)):
        (x, y), colour = place(each), COLOURS[at % len(COLOURS)]
        about = f"{each.name}: {each.gpu_hours:.1f} GPU-hours, p95 {each.wait_p95_s:.0f}s"
        dots.append(
            f'<circle cx="{x:.1f}" cy="{y:.1f}" r="5" fill="{colour}"><title>{html.escape(about)}</title></circle>'
            f'<text x="{x + 8:.1f}" y="{y + (-6 if above else 16):.1f}">{html.escape(each.name)}</text>'
        )
    return Template(Path(__file__).with_name("picture.html").read_text(encoding="utf-8")).substitute(
        title=html.escape(title),
        said=html.escape(said),
        line=" ".join(f"{x:.1f},{y:.1f}" for x, y in map(place, worthwhile(shown))),
        dots="".join(dots),
        hours=f"{most_hours:.0f}",
        wait=f"{math.expm1(most_wait):.0f}",
        rows=rows,
    )


def _written(path: Path, write: Callable[[], object]) -> None:
    try:
        write()
    except OSError as error:
        raise InvalidRequest(f"{path} cannot be written: {error}") from error
