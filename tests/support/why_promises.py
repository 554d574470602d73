"""What `herdsman why` and `herdsman eta` promise of every situation in which a job waits."""

import re
from collections.abc import Callable, Generator, Mapping, Set
from typing import ClassVar

import pytest

from herdsman.explain.eta import eta
from herdsman.explain.rules import WaitCode
from herdsman.ids import JobId
from tests.support.databases import every_database
from tests.support.why_situations import Site

Situation = Callable[[Site], Generator[JobId]]
"""Makes it and gives the job; what comes after that takes the reason away."""
Expected = tuple[str, str]
"""The code of the reason, and what its sentence looks like."""
UTC = r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC"


def each_of(situations: Mapping[Situation, Expected]) -> pytest.MarkDecorator:
    names = [f"{number:02}-{code}" for number, (code, _) in enumerate(situations.values())]
    return pytest.mark.parametrize(("situation", "expected"), situations.items(), ids=names)


class SituationContract:
    """Whoever inherits it is marked with `each_of` its situations."""

    timed: ClassVar[Set[Situation]]
    """What can be counted with: others go first, a worker is busy or about to start, the moment is known."""

    @every_database
    def test_the_first_sentence_names_what_the_job_truly_waits_for(
        self, site: Site, situation: Situation, expected: Expected
    ) -> None:
        """It truly keeps the job from being given out, and is not named any more when it is fixed."""
        code, sentence = expected
        making = situation(site)
        job = next(making)
        answer = site.why(job)
        assert answer.blocker is not None
        assert answer.blocker.code == code, answer.because
        assert answer.because[0] == answer.blocker.sentence
        assert re.search(sentence, answer.because[0]), answer.because[0]
        if code not in (WaitCode.NEXT, WaitCode.SILENT_WORKERS):
            assert job not in site.given_out(), "nothing was in its way after all"
        next(making, None)
        after = site.why(job).blocker
        assert after is None or after.code != code, f"it was fixed, and still: {after.sentence}"

    def test_a_time_is_told_only_where_nothing_but_the_line_is_in_the_way(
        self, site: Site, situation: Situation, expected: Expected
    ) -> None:
        job = next(situation(site))
        found = eta(site.services, job)
        code = None if situation in self.timed else expected[0]
        assert (found.blocker and found.blocker.code) == code, found.basis
        if code is not None:
            assert (found.start, found.finish) == (None, None)
            assert found.basis.startswith("no estimate: ")
