"""Every page, light and dark, on a desk and in a hand: nothing sticks out, and nobody is kept out."""

from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect

from tests.browser.chromium import PHONE, WIDE, Visitor, a_visitor
from tests.browser.page_list import SIGHTS, THEMES, grave_findings, keep, show, too_wide
from tests.browser.site import Site
from tests.browser.story import LONG, MARKUP, Story, at_work, tell

pytestmark = pytest.mark.timeout(300)


@pytest.fixture(scope="module")
def told(site: Site) -> Story:
    return tell(site)


@pytest.fixture
def story(told: Story, site: Site) -> Story:
    """With a job that runs now, however long the other tests took."""
    return replace(told, running=at_work(site))


@pytest.fixture(scope="module")
def looker(browser: Browser, site: Site) -> Iterator[Visitor]:
    """One for all pages, as a person goes from one to the next."""
    with a_visitor(browser, site.url) as arrived:
        arrived.enter(site.token)
        yield arrived


@pytest.mark.parametrize("name", SIGHTS)
def test_a_page_fits_every_screen_and_everybody(
    looker: Visitor, story: Story, pictures: Path | None, name: str
) -> None:
    SIGHTS[name].visit(looker, story)
    for theme, width in product(THEMES, (WIDE, PHONE)):
        show(looker, theme, width)
        assert too_wide(looker) == []
        keep(looker, pictures, f"{name}-{theme}-{width}")
        # Axe takes its time: each theme and each width once, not all four.
        if (theme, width) in (("light", PHONE), ("dark", WIDE)):
            assert grave_findings(looker) == []
    assert looker.complaints() == []


def test_the_form_fits_every_screen_and_everybody(visitor: Visitor, pictures: Path | None) -> None:
    visitor.page.goto(visitor.url)
    expect(visitor.see("signin")).to_be_visible()
    for theme in THEMES:
        for width in (WIDE, PHONE):
            show(visitor, theme, width)
            assert too_wide(visitor) == []
            assert grave_findings(visitor) == []
            keep(visitor, pictures, f"signin-{theme}-{width}")


def test_a_question_fits_every_screen_and_everybody(admin: Visitor, pictures: Path | None) -> None:
    admin.go("/jobs")
    admin.see("submit-job").click()
    for theme in THEMES:
        for width in (WIDE, PHONE):
            show(admin, theme, width)
            assert too_wide(admin) == []
            assert grave_findings(admin) == []
            keep(admin, pictures, f"submit-{theme}-{width}", whole=False)


def test_a_page_that_cannot_be_loaded_says_so(admin: Visitor) -> None:
    admin.forgive("status of 404")
    admin.go(f"/pools/{LONG}")
    expect(admin.see("trouble")).to_contain_text("There is no pool")
    admin.arrived(f"Pool {LONG}")
    show(admin, "light", PHONE)
    assert too_wide(admin) == []
    assert grave_findings(admin) == []


def test_a_phone_has_a_menu(admin: Visitor, pictures: Path | None) -> None:
    show(admin, "light", PHONE)
    expect(admin.see("nav-workers")).not_to_be_visible()
    admin.see("menu").click()
    expect(admin.see("nav-workers")).to_be_visible()
    assert grave_findings(admin) == []
    keep(admin, pictures, f"menu-light-{PHONE}")
    admin.page.keyboard.press("Escape")
    expect(admin.see("nav-workers")).not_to_be_visible()
    admin.see("menu").click()
    admin.see("nav-workers").click()
    admin.arrived("Workers")
    expect(admin.see("nav-workers")).not_to_be_visible()


def test_what_looks_like_markup_is_shown_as_it_was_written(admin: Visitor, story: Story) -> None:
    SIGHTS["job-odd"].visit(admin, story)
    assert MARKUP in str(
        admin.page.evaluate("JSON.parse(document.querySelector('[data-test=payload-json]').textContent).prompt")
    )
    assert admin.page.locator("main img").count() == 0


def test_the_theme_that_was_chosen_stays(admin: Visitor) -> None:
    assert not dark(admin)
    admin.see("theme").click()
    assert dark(admin)
    admin.page.reload()
    expect(admin.see("me")).to_be_visible()
    assert dark(admin)
    admin.page.emulate_media(color_scheme="dark")
    admin.see("theme").click()
    assert not dark(admin)
    other = admin.page.context.new_page()
    other.emulate_media(color_scheme="dark")
    other.goto(admin.url)
    assert not dark(Visitor(other, admin.url))


def test_who_chose_none_has_the_theme_of_the_system(browser: Browser, site: Site) -> None:
    with a_visitor(browser, site.url, theme="dark") as owl:
        owl.page.goto(site.url)
        assert dark(owl)
        owl.page.emulate_media(color_scheme="light")
        assert not dark(owl)


def dark(visitor: Visitor) -> bool:
    """By the colour that is really there."""
    colour: str = visitor.page.evaluate("getComputedStyle(document.body).backgroundColor")
    red, green, blue = (float(part) for part in colour.strip("rgba()").split(",")[:3])
    return red + green + blue < 3 * 128
