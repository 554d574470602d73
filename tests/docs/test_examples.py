"""Every example of the documentation is run; one that cannot be says why."""

from pathlib import Path

import pytest

from tests.docs.comparing import matches, same_ids
from tests.docs.pages import ROOT, Page, page, pages
from tests.docs.running import OUTPUT, RUN, Difference, Reader

OTHER = ("text", "toml", "sql", "mermaid")
"""Blocks that nobody types into a shell; tests of their own look at the SQL and the diagrams."""

EXAMPLES = [each.name for each in pages() if any(block.language in RUN for block in each.blocks())]


# The README lets a worker die, and waits until its job is done all the same.
@pytest.mark.timeout(400)
@pytest.mark.parametrize("name", EXAMPLES)
def test_the_examples_of_a_page_do_what_it_says(name: str, tmp_path: Path) -> None:
    Reader(tmp_path, load=name == "README.md").follow(page(name))


@pytest.mark.parametrize("each", pages(), ids=lambda each: each.name)
def test_no_block_is_passed_over_in_silence(each: Page) -> None:
    for block in each.blocks():
        where = f"{each.name}:{block.line}"
        assert block.language in (*RUN, OUTPUT, *OTHER), f"{where}: {block.language!r} is not one of our languages"
        if block.left_out is not None:
            assert len(block.left_out) > 10, f"{where}: say why the block is not run"
        if block.remark is not None and block.language in RUN:
            known = block.left_out or block.keeps_running or block.fills_terminal
            assert known, f"{where}: what does {block.remark!r} mean?"


@pytest.mark.parametrize("each", pages(), ids=lambda each: each.name)
def test_an_output_follows_the_block_that_prints_it(each: Page) -> None:
    blocks = list(each.blocks())
    for before, block in zip([None, *blocks], blocks, strict=False):
        if block.language == OUTPUT:
            assert before is not None, f"{each.name}:{block.line}: nothing comes before it"
            assert before.language == "bash", f"{each.name}:{block.line}: no shell block comes before it"


def follow(text: str, directory: Path) -> None:
    Reader(directory).follow(Page(ROOT / "example.md", text))


def test_a_command_that_fails_is_noticed(tmp_path: Path) -> None:
    with pytest.raises(Difference, match=r"example.md:2 ended with 3"):
        follow("```bash\nexit 3\necho on\n```\n", tmp_path)


def test_another_output_is_noticed(tmp_path: Path) -> None:
    with pytest.raises(Difference, match=r"example.md:6 shows\none\n"):
        follow("```bash\necho two\n```\n\n```console\none\n```\n", tmp_path)


def test_a_wrong_claim_in_python_is_noticed_on_its_own_line(tmp_path: Path) -> None:
    with pytest.raises(Difference, match=r"line 6"):
        follow("```python\na = 1\n```\n\n```python\nassert a == 2\n```\n", tmp_path)


def test_a_program_that_keeps_running_is_noticed_when_it_does_not(tmp_path: Path) -> None:
    with pytest.raises(Difference, match=r"but this was printed:\nshort\n"):
        follow("<!-- keeps running -->\n```bash\necho short\n```\n\n```console\nlong\n```\n", tmp_path)


def test_a_block_with_a_reason_is_left_out(tmp_path: Path) -> None:
    follow("<!-- not run: it would fail -->\n```bash\nexit 1\n```\n", tmp_path)


IN_A_TERMINAL = "<!-- in a terminal, until `{words}` is shown; `q` leaves it -->\n```bash\n{command}\n```\n"


def test_a_command_that_fills_a_terminal_is_left_by_its_key(tmp_path: Path) -> None:
    left = "bash -c 'stty raw; tput bold; echo all of it; [ $(head -c 1) = q ]'"
    follow(IN_A_TERMINAL.format(words="all of it", command=left), tmp_path)


def test_a_terminal_that_stays_empty_is_noticed(tmp_path: Path) -> None:
    with pytest.raises(Difference, match=r"example.md:3 never showed 'more'"):
        follow(IN_A_TERMINAL.format(words="more", command="echo less"), tmp_path)


def test_a_terminal_that_is_not_left_well_is_noticed(tmp_path: Path) -> None:
    with pytest.raises(Difference, match=r"example.md:3: 'q' left it with 3"):
        follow(IN_A_TERMINAL.format(words="x", command="bash -c 'echo x; read -n 1; exit 3'"), tmp_path)


def test_an_id_on_the_page_stands_for_the_one_that_was_printed(tmp_path: Path) -> None:
    shown, mine = "0" * 32, "f" * 32
    page = f"```bash\necho job {mine} > made; cat made\n```\n\n```console\njob {shown}\n```\n\n"
    follow(f"{page}```bash\ngrep -v {shown} made && exit 1; grep {shown} made\n```\n", tmp_path)


def test_ids_are_found_in_their_lines() -> None:
    worker, other = (
        "gpu-1-01234567-89ab-cdef-0123-456789abcdef",
        "gpu-2-76543210-ba98-fedc-3210-fedcba987654",
    )
    shown = f"...\nkilled {worker}, held {'1' * 32}\n...\nend"
    printed = f"job {'3' * 32}\nwarning of a kind\n\nkilled  {other}, held {'2' * 32}\nmore\nend"
    assert same_ids(shown, printed) == {worker: other, "1" * 32: "2" * 32}


@pytest.mark.parametrize(
    ("shown", "printed"),
    [
        ("7f3c9d2e7f3c9d2e7f3c9d2e7f3c9d2e  4s", "00000000000000000000000000000000   12s"),
        ("at 2026-01-01 12:00:00", "at 2031-05-06 07:08:09"),
        ("token hm_viewer_0a_b-c_0d", "token hm_viewer_12ef_-Ab_9_77aa"),
        ("on gpu-1-01234567-89ab-cdef-0123-456789abcdef", "on gpu-2-76543210-ba98-fedc-3210-fedcba987654"),
        ("7 12:00:00 job", "  118  14:58:56  job"),
        ("next herdsman top", "next      .venv/bin/herdsman top"),
        ("as process 4711", "as process 9"),
        ("gpus none found", "gpus      NVIDIA L4 (24 GB)"),
        ("a\n...\nz", "a\nb\nc\nz"),
        ("server   SQLite 3.51.3", "server   SQLite 3.40.1"),
    ],
)
def test_ids_times_and_versions_may_differ(shown: str, printed: str) -> None:
    assert matches(shown, printed)


@pytest.mark.parametrize(("shown", "printed"), [("a", "a\nwarning  b"), ("a\n...\nz", "a\nb"), ("1 job", "2 job")])
def test_nothing_else_may_differ(shown: str, printed: str) -> None:
    assert not matches(shown, printed)
