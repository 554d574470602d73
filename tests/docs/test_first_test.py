"""The test that a newcomer reads is one that runs."""

from tests.docs.pages import ROOT, page


def test_the_first_test_is_the_one_on_the_page() -> None:
    shown = next(block for block in page("docs/your-first-test.md").blocks() if block.language == "python")
    assert shown.text.strip() == (ROOT / "tests/contract/test_first.py").read_text().strip()
