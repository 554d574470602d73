"""The words of the glossary: metaphors that only we would understand stay out of code and pages."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
INSTEAD = {
    "pretend": "simulate",
    "pretended": "simulated",
    "glance": "observe",
    "desk": "server state",
    "door": "client",
    "gatekeeper": "gates",
    "hindrance": "wait reason",
    "obstacle": "wait reason",
    "stray": "orphan",
    "strays": "orphans",
    "whereabouts": "runtime files",
    "brim": "capacity",
    "parcel": "group",
    "turnstile": "semaphore",
    "mend": "repair",
    "mends": "repairs",
    "mended": "repaired",
    "pulse": "heartbeat",
    "herd": "fleet",
    "bury": "mark terminated",
    "buried": "terminated",
    "roster": "job streams",
    "ear": "event",
    "errand": "call",
    "errands": "calls",
    "shelf": "node",
    "glimpse": "snapshot",
    "knock": "wake",
    "kin": "related processes",
}
SEEN_BY_PEOPLE = (".py", ".js", ".html", ".css", ".sql", ".md")
ALLOWED = re.compile(
    r"local_?herd|herd\.db|herd_\w*\.png"
    r'|herd--|"[^"\n]*\bherd\b[^"\n]*"|[\'"]HERD',  # the old name of a class, files, and sample payloads
    re.IGNORECASE,
)


def words(text: str) -> set[str]:
    """Also those inside of identifiers, in either case."""
    apart = re.sub(r"(?<=[a-z])(?=[A-Z])", " ", ALLOWED.sub("", text)).replace("_", " ")
    return set(re.findall(r"[a-z]+", apart.lower()))


def test_no_private_metaphor_comes_back() -> None:
    pages = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]
    sources = [each for each in (ROOT / "src").rglob("*") if each.suffix in SEEN_BY_PEOPLE]
    found = [
        f"{file.relative_to(ROOT)}:{number}: {word!r}, write {INSTEAD[word]!r}"
        for file in (*pages, *sources)
        if file.name != "CHANGELOG.md" and "decisions" not in file.parts  # they tell what was, in its words
        for number, line in enumerate(file.read_text().splitlines(), start=1)
        for word in words(line) & INSTEAD.keys()
    ]
    assert found == []


def test_a_metaphor_is_seen_wherever_it_hides() -> None:
    for line in ("class ApiDoor:", "def _glance(self)", "herd_size = 3", "# it mends the row"):
        assert words(line) & INSTEAD.keys()
    assert not words('payload={"prompt": "a herd"}') & INSTEAD.keys()
