"""Hours of the week: over midnight, where clocks change, and where windows overlap."""

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from herdsman.errors import InvalidRequest
from herdsman.fleet.observe import check_zone, local_times
from herdsman.pools.rules import (
    WHOLE_DAY,
    Schedule,
    Sizes,
    Window,
    check_schedule,
    parse_clock,
    parse_days,
    shown_clock,
    shown_days,
)

MONDAY = datetime(2026, 3, 2, tzinfo=UTC)
WEEKDAYS = frozenset(range(5))


def a_window(begin: str, end: str, days: str = "mon-fri", *, least: int = 2, zone: str = "UTC") -> Window:
    return Window(
        days=parse_days(days),
        begin=parse_clock("from", begin),
        end=parse_clock("to", end),
        zone=zone,
        sizes=Sizes(least=least),
    )


def least(schedule: Schedule, now: datetime) -> int | None:
    return schedule.sizes(local_times(schedule.zones, now)).least


@pytest.mark.parametrize(
    ("text", "days"),
    [
        ("mon-fri", {0, 1, 2, 3, 4}),
        ("sat,sun", {5, 6}),
        ("fri-mon", {4, 5, 6, 0}),
        ("Mon, wed-Thu", {0, 2, 3}),
        ("daily", {0, 1, 2, 3, 4, 5, 6}),
    ],
)
def test_days_are_read_as_people_write_them(text: str, days: set[int]) -> None:
    assert parse_days(text) == days


@pytest.mark.parametrize("text", ["", "monday", "mon-", "-fri", "mon,,fri", "1-5", "mon-fri-sun"])
def test_days_that_are_none_are_refused(text: str) -> None:
    with pytest.raises(InvalidRequest, match="days"):
        parse_days(text)


@pytest.mark.parametrize("text", ["", "8", "25:00", "24:01", "08:60", "8.30", "-1:00", "\u0660\u0668:00"])
def test_times_that_are_none_are_refused(text: str) -> None:
    with pytest.raises(InvalidRequest, match="from"):
        parse_clock("from", text)


@given(st.integers(0, WHOLE_DAY), st.sets(st.integers(0, 6), min_size=1))
def test_what_is_shown_is_read_back(minutes: int, days: set[int]) -> None:
    assert parse_clock("from", shown_clock(minutes)) == minutes
    assert parse_days(shown_days(days)) == days


def test_a_window_begins_with_its_first_minute_and_ends_before_its_last() -> None:
    office = a_window("08:00", "18:00")
    hours = {
        MONDAY.replace(hour=7, minute=59): False,
        MONDAY.replace(hour=8): True,
        MONDAY.replace(hour=17, minute=59): True,
        MONDAY.replace(hour=18): False,
        MONDAY.replace(hour=12) + timedelta(days=5): False,
    }
    assert {at: office.covers(at) for at in hours} == hours


def test_a_window_over_midnight_belongs_to_the_day_on_which_it_begins() -> None:
    night = a_window("22:00", "06:00", "fri")
    friday = MONDAY + timedelta(days=4)
    assert night.covers(friday.replace(hour=23))
    assert night.covers(friday.replace(hour=5) + timedelta(days=1))
    assert not night.covers(friday.replace(hour=5))
    assert not night.covers(friday.replace(hour=23) + timedelta(days=1))


def test_sunday_night_reaches_into_monday() -> None:
    assert a_window("22:00", "06:00", "sun").covers(MONDAY.replace(hour=5))


def test_a_whole_day_is_possible_and_no_length_is_refused() -> None:
    check_schedule(Schedule(windows=(a_window("00:00", "24:00"),)))
    assert a_window("00:00", "24:00", "mon").covers(MONDAY.replace(hour=23, minute=59))
    for begin, end in (("08:00", "08:00"), ("24:00", "08:00"), ("22:00", "00:00")):
        with pytest.raises(InvalidRequest, match="no length"):
            check_schedule(Schedule(windows=(a_window(begin, end),)))


def test_outside_of_all_windows_other_sizes_hold() -> None:
    plain = Schedule(windows=(a_window("08:00", "18:00"),))
    warm = Schedule(windows=plain.windows, outside=Sizes(least=1, most=3))
    assert least(plain, MONDAY.replace(hour=3)) == 0
    assert least(warm, MONDAY.replace(hour=3)) == 1
    assert least(warm, MONDAY.replace(hour=9)) == 2


def test_where_windows_overlap_the_highest_wins() -> None:
    both = Schedule(windows=(a_window("08:00", "18:00", least=2), a_window("12:00", "14:00", least=5)))
    assert [least(both, MONDAY.replace(hour=hour)) for hour in (9, 12, 15)] == [2, 5, 2]


def test_the_clock_is_that_of_the_window() -> None:
    """08:00 in Berlin is 07:00 UTC in winter and 06:00 in summer."""
    office = Schedule(windows=(a_window("08:00", "18:00", zone="Europe/Berlin"),))
    assert least(office, datetime(2026, 1, 7, 6, 30, tzinfo=UTC)) == 0
    assert least(office, datetime(2026, 1, 7, 7, 0, tzinfo=UTC)) == 2
    assert least(office, datetime(2026, 7, 8, 6, 0, tzinfo=UTC)) == 2


def test_an_hour_that_the_clocks_skip_does_not_come_and_one_that_they_repeat_comes_twice() -> None:
    berlin = ZoneInfo("Europe/Berlin")
    small = a_window("02:00", "03:00", "sun", zone="Europe/Berlin")

    def minutes(midnight: datetime) -> int:
        instants = (midnight + timedelta(minutes=number) for number in range(WHOLE_DAY))
        return sum(1 for now in instants if small.covers(now.astimezone(berlin)))

    assert minutes(datetime(2026, 3, 28, 23, tzinfo=UTC)) == 0
    assert minutes(datetime(2026, 10, 24, 22, tzinfo=UTC)) == 120
    assert minutes(datetime(2026, 6, 6, 22, tzinfo=UTC)) == 60


def test_zones_that_are_none_are_refused_and_later_taken_for_utc() -> None:
    for name in ("Mars/Olympus", "", "../etc/passwd", "Europe", "a\0b", "x" * 300):
        with pytest.raises(InvalidRequest, match="timezone"):
            check_zone(name)
    assert local_times(["Mars/Olympus"], MONDAY)["Mars/Olympus"] == MONDAY


@given(st.integers(0, WHOLE_DAY - 1), st.integers(1, WHOLE_DAY), st.integers(0, 7 * WHOLE_DAY))
def test_a_window_and_its_complement_fill_the_week(begin: int, end: int, minute: int) -> None:
    if begin in (0, end) or end == WHOLE_DAY:
        return
    now = MONDAY + timedelta(minutes=minute)
    every = frozenset(range(7))
    one, other = Window(days=every, begin=begin, end=end), Window(days=every, begin=end, end=begin)
    assert one.covers(now) != other.covers(now)
