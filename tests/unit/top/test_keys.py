"""Keys of `herdsman top`: what each does, and that nothing is done without its question."""

import re
from threading import Event

import pytest
from rich.terminal_theme import SVG_EXPORT_THEME

from herdsman.cli.top.app import Top
from herdsman.cli.top.command import observe
from herdsman.errors import Conflict, Forbidden
from herdsman.explain.wire import WhyOut
from tests.support.top_fleet import WORKERS, a_job
from tests.support.top_server import FakeServer
from tests.support.top_terminal import PLACE, StillClock, Terminal, at_terminal

FIRST = WORKERS[0].worker_id
TO_WORKERS = ("tab",)
TO_JOBS = ("tab", "tab")


def cursor(terminal: Terminal) -> str:
    """The row that the cursor is on."""
    (line,) = [line for line in terminal.lines() if line.startswith("▸")]
    return line[1:]


def test_a_job_is_cancelled_once_and_only_after_yes() -> None:
    async def story(terminal: Terminal) -> None:
        await terminal.press(*TO_JOBS, "c")
        assert terminal.server.done == []
        await terminal.press("y")
        await terminal.until("img-16 is cancelled")
        assert terminal.server.done == [("cancel", "img-16")]
        await terminal.second(60)
        await terminal.until("img-16 is cancelled", gone=True)

    at_terminal(story)


@pytest.mark.parametrize("no", ["n", "escape", "enter", "q"])
def test_everything_but_yes_is_no(no: str) -> None:
    async def story(terminal: Terminal) -> None:
        await terminal.press(*TO_JOBS, "c", no)
        await terminal.until("nothing was done")
        await terminal.press(*TO_WORKERS, *TO_WORKERS, *TO_WORKERS, "d", no)
        await terminal.until("nothing was done")
        assert terminal.server.done == []

    at_terminal(story)


def test_a_worker_is_drained_after_yes() -> None:
    async def story(terminal: Terminal) -> None:
        await terminal.press(*TO_WORKERS, "d", "y")
        await terminal.until("it finishes its job and exits")
        assert terminal.server.done == [("drain", FIRST)]

    at_terminal(story)


def test_a_job_is_run_again_without_a_question() -> None:
    async def story(terminal: Terminal) -> None:
        await terminal.press(*TO_JOBS, "j", "j", "j", "r")
        await terminal.until("img-13 is pending again")
        assert terminal.server.done == [("retry", "img-13")]

    at_terminal(story)


def test_the_keys_mean_the_job_of_a_worker_where_it_holds_one() -> None:
    async def story(terminal: Terminal) -> None:
        await terminal.press(*TO_WORKERS, "c", "y")
        await terminal.until("img-14 is cancelled")
        assert terminal.server.done == [("cancel", "img-14")]
        await terminal.press("j", "c")
        await terminal.until("this worker runs several jobs")
        await terminal.press("j", "c")
        await terminal.until("put the cursor on a job")
        await terminal.press("shift+tab", "d")
        await terminal.until("put the cursor on a worker")
        assert terminal.server.done == [("cancel", "img-14")]

    at_terminal(story)


def test_from_a_worker_to_its_job_and_back() -> None:
    async def story(terminal: Terminal) -> None:
        await terminal.press(*TO_WORKERS, "j", "enter")
        await terminal.until("img-12")
        await terminal.press("d", "y")
        await terminal.until("it finishes its job")
        await terminal.press("j", "c")
        await terminal.until("Cancel the job img-12?")
        await terminal.press("n", "escape")
        await terminal.until("DECISION")
        assert terminal.server.done == [("drain", WORKERS[1].worker_id)]

    at_terminal(story)


def test_on_the_page_of_a_job_the_keys_mean_that_job() -> None:
    async def story(terminal: Terminal) -> None:
        await terminal.press(*TO_JOBS, "j", "j", "enter")
        await terminal.until("step 2 of 2")
        await terminal.press("r")
        await terminal.until("img-14 is pending again")
        await terminal.press("d")
        await terminal.until("put the cursor on a worker")
        terminal.server.log = (*terminal.server.log, "and a line more")
        await terminal.second()
        await terminal.until("and a line more")
        assert terminal.text().count("drawing a herd") == 1

    at_terminal(story)


def test_what_the_server_refuses_is_said() -> None:
    async def story(terminal: Terminal) -> None:
        await terminal.press(*TO_JOBS)
        terminal.server.error = Forbidden("the token eye (viewer) may not POST /jobs/img-16/retry")
        await terminal.press("r")
        await terminal.until("may not POST /jobs/img-16/retry")
        terminal.server.error = Conflict("img-16 has not ended")
        await terminal.press("r")
        await terminal.until("img-16 has not ended")
        assert terminal.server.done == []

    at_terminal(story)


def test_the_cursor_moves_and_stays_on_its_row() -> None:
    async def story(terminal: Terminal) -> None:
        assert "image " in cursor(terminal)
        await terminal.press(*TO_JOBS, "j", "down", "k")
        assert "img-15" in cursor(terminal)
        terminal.server.jobs = (a_job("img-17", "pending"), *terminal.server.jobs)
        await terminal.second()
        await terminal.until("img-17")
        assert "img-15" in cursor(terminal)
        terminal.server.jobs = tuple(job for job in terminal.server.jobs if job.job_id != "img-15")
        await terminal.second()
        await terminal.until("img-15", gone=True)
        assert "img-14" in cursor(terminal)
        await terminal.press("G")
        assert "7f3c9d2" in cursor(terminal)
        await terminal.press("g")
        assert "img-17" in cursor(terminal)

    at_terminal(story)


def test_a_long_list_is_scrolled() -> None:
    async def story(terminal: Terminal) -> None:
        await terminal.press(*TO_JOBS)
        seen = set[str]()
        for _ in range(30):
            seen.add(cursor(terminal).split()[0])
            await terminal.press("j")
        assert seen == {f"job-{number:02}" for number in range(30)}
        assert "30/30" in terminal.text()
        await terminal.press("pageup")
        assert cursor(terminal).startswith("job-25")

    at_terminal(story, FakeServer(jobs=tuple(a_job(f"job-{number:02}", "pending") for number in range(30))))


def test_a_filter_is_typed_kept_and_ended() -> None:
    async def story(terminal: Terminal) -> None:
        await terminal.press("slash", *"img-13q", "backspace")
        await terminal.until("dead_letter")
        assert "img-16" not in terminal.text()
        await terminal.press("enter", "tab", "tab")
        assert cursor(terminal).startswith("img-13")
        await terminal.second()
        assert "img-16" not in terminal.text()
        await terminal.press("escape")
        await terminal.until("img-16")

    at_terminal(story)


def test_the_picture_is_held_still_and_goes_on() -> None:
    async def story(terminal: Terminal) -> None:
        await terminal.press("p")
        await terminal.until("display is paused")
        asked = terminal.server.asked
        terminal.server.jobs = (a_job("img-17", "pending"),)
        for _ in range(3):
            await terminal.second()
        assert terminal.server.asked == asked
        assert "img-17" not in terminal.text()
        await terminal.press("p")
        await terminal.until("img-17")

    at_terminal(story)


def test_the_next_choice_of_jobs_is_asked_of_the_server() -> None:
    async def story(terminal: Terminal) -> None:
        await terminal.until("img-16")
        await terminal.press("s")
        await terminal.until("JOB (waiting)")
        await terminal.until("img-13", gone=True)

    at_terminal(story)


def test_a_server_that_hangs_keeps_no_key_waiting() -> None:
    async def story(terminal: Terminal) -> None:
        terminal.server.gate = Event()
        await terminal.second()
        await terminal.second(9)
        await terminal.until("no answer for 10s")
        await terminal.press(*TO_WORKERS)
        assert cursor(terminal).startswith("gpu-17")
        asked = terminal.server.asked
        await terminal.second()
        terminal.server.gate.set()
        await terminal.until("no answer", gone=True)
        assert terminal.server.asked == asked + 1

    at_terminal(story)


def test_q_leaves_at_once_even_while_a_question_is_open() -> None:
    gate = Event()

    async def story(terminal: Terminal) -> None:
        terminal.server.gate = gate
        await terminal.second()
        await terminal.press("q")
        assert not terminal.app.is_running

    at_terminal(story)
    gate.set()


def test_a_mistake_of_ours_is_not_hidden() -> None:
    class Wrong(FakeServer):
        def why(self, kind: str, named: str) -> WhyOut:
            raise ZeroDivisionError(f"a mistake about {kind} {named}")

    async def story(terminal: Terminal) -> None:
        await terminal.press(*TO_JOBS, "enter")
        await terminal.settle()

    with pytest.raises(ZeroDivisionError, match="a mistake"):
        at_terminal(story, Wrong())


def test_a_full_gpu_is_red_and_without_colours_nothing_is(monkeypatch: pytest.MonkeyPatch) -> None:
    screens = list[str]()

    async def story(terminal: Terminal) -> None:
        screens.append(terminal.svg())

    at_terminal(story)
    monkeypatch.setenv("NO_COLOR", "1")
    at_terminal(story)
    colours = [set(re.findall(r"fill: (#\w+)", screen)) for screen in screens]
    assert len(colours[0]) > len(colours[1])
    red = SVG_EXPORT_THEME.ansi_colors[1].hex
    assert red in colours[0]
    assert red not in colours[1]


def test_the_clock_of_the_server_is_the_one_that_is_shown() -> None:
    server = FakeServer()
    assert Top(server.client, PLACE, observe(server.client), StillClock()).session.now() == server.seen.now
