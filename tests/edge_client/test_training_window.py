"""The training window: the moments that it contains, and the time until it opens or closes."""

from __future__ import annotations

import os
import time as clock
from datetime import datetime, timedelta, timezone
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moonfed.edge_client.training_window import TrainingWindow
from moonfed.errors import InvalidInput
from tests.support.refusals import refused

BERLIN = ZoneInfo("Europe/Berlin")  # 2026: an hour is skipped on 29 March at 2:00, repeated on 25 October at 3:00
HOUR = 3600.0


def berlin(text: str, fold: int = 0) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=BERLIN, fold=fold)


@pytest.mark.parametrize(
    ("window", "moment", "until_open", "until_close"),
    [
        ("09:00-17:00", "2026-06-10T08:00", 1 * HOUR, 0),
        ("09:00-17:00", "2026-06-10T09:00", 0, 8 * HOUR),
        ("09:00-17:00", "2026-06-10T16:59:30", 0, 30),
        ("09:00-17:00", "2026-06-10T17:00", 16 * HOUR, 0),
        ("22:00-06:00", "2026-06-10T21:00", 1 * HOUR, 0),
        ("22:00-06:00", "2026-06-10T23:00", 0, 7 * HOUR),
        ("22:00-06:00", "2026-06-11T00:00", 0, 6 * HOUR),
        ("22:00-06:00", "2026-06-11T06:00", 16 * HOUR, 0),
        ("00:00-23:59", "2026-12-31T23:59:15", 45, 0),
        ("23:59-00:01", "2026-12-31T23:59:15", 0, 105),
        # The clock goes from 2:00 to 3:00: the night is an hour shorter.
        ("22:00-06:00", "2026-03-28T22:00", 0, 7 * HOUR),
        ("22:00-06:00", "2026-03-29T01:59", 0, 3 * HOUR + 60),
        ("04:00-05:00", "2026-03-29T01:00", 2 * HOUR, 0),
        # The clock goes from 3:00 back to 2:00: the night is an hour longer.
        ("22:00-06:00", "2026-10-24T22:00", 0, 9 * HOUR),
        ("04:00-05:00", "2026-10-25T01:00", 4 * HOUR, 0),
        ("02:00-02:30", "2026-10-25T01:00", 1 * HOUR, 0),
        # From 2:30, which does not exist and is 3:30, to 3:00: not on that day.
        ("02:30-03:00", "2026-03-29T01:30", 24 * HOUR, 0),
    ],
)
def test_the_ends_of_a_window(window: str, moment: str, until_open: float, until_close: float) -> None:
    read, at = TrainingWindow.parse(window, BERLIN), berlin(moment)
    assert (read.seconds_until_open(at), read.seconds_until_close(at)) == (until_open, until_close)
    assert read.contains(at) == (until_close > 0)


def test_a_repeated_hour_counts_once() -> None:
    window = TrainingWindow.parse("02:00-02:30", BERLIN)
    assert window.contains(berlin("2026-10-25T02:15"))
    assert not window.contains(berlin("2026-10-25T02:15", fold=1))


minutes = st.integers(0, 24 * 60 - 1)


@given(opens=minutes, closes=minutes, at=st.datetimes(datetime(2026, 1, 1), datetime(2026, 12, 31)))
def test_in_a_zone_without_daylight_saving_a_window_is_modular_arithmetic(
    opens: int, closes: int, at: datetime
) -> None:
    def text(minute: int) -> str:
        return f"{minute // 60:02}:{minute % 60:02}"

    if opens == closes:
        return
    zone = timezone(timedelta(hours=5, minutes=30))
    window = TrainingWindow.parse(f"{text(opens)}-{text(closes)}", zone)
    moment = at.replace(tzinfo=zone)
    second = at.hour * 3600 + at.minute * 60 + at.second + at.microsecond / 1e6
    since, length, day = (second - opens * 60) % 86400, ((closes - opens) * 60) % 86400, 86400
    inside = since < length
    assert window.contains(moment) == inside
    assert window.seconds_until_close(moment) == pytest.approx(length - since if inside else 0, abs=1e-3)
    assert window.seconds_until_open(moment) == pytest.approx(0 if inside else day - since, abs=1e-3)


def test_without_a_zone_a_window_is_in_the_systems(monkeypatch: pytest.MonkeyPatch) -> None:
    window = TrainingWindow.parse("22:00-06:00")
    before = os.environ.get("TZ")
    try:
        for zone in ("Europe/Berlin", "America/St_Johns", "Asia/Kathmandu"):
            os.environ["TZ"] = zone
            clock.tzset()
            late = datetime(2026, 7, 1, 22, 30, tzinfo=ZoneInfo(zone))
            assert window.seconds_until_close(late) == 7.5 * HOUR
            assert window.seconds_until_open(late.astimezone(timezone.utc) - timedelta(hours=1)) == 0.5 * HOUR
    finally:
        os.environ.pop("TZ")
        if before is not None:
            os.environ["TZ"] = before
        clock.tzset()


@pytest.mark.parametrize(
    "text", ["", "22:00", "22-6", "6:00-22:00", "22:00-24:00", "22:60-06:00", "22:00-22:00", "22:00 - 06:00", "a-b"]
)
def test_an_invalid_window_is_rejected(text: str) -> None:
    with refused(InvalidInput, "between"):
        TrainingWindow.parse(text)


def test_a_window_prints_as_it_was_given() -> None:
    assert str(TrainingWindow.parse("22:05-06:00")) == "22:05-06:00"
