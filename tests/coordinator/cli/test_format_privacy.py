"""Privacy that runs spend, as operators read it."""

from __future__ import annotations

from dataclasses import replace

from moonfed.control.privacy import PrivacyCharge, PrivacyReport, PrivacySpent
from moonfed.coordinator.cli.format_privacy import privacy_lines, promise, report_lines
from moonfed.formatting import moment

SPENT = PrivacySpent(
    epsilon=1.4213,
    budget=2,
    delta=1e-5,
    sampling_rate=120 / 3383,
    noise_multiplier=1.195967,
    clip_norm=0.5,
    releases=61,
    rounds=100,
)
CHARGE = PrivacyCharge(
    run="digits",
    created=moment(0),
    mechanism="gaussian",
    releases=61,
    epsilon=1.4213,
    delta=1e-5,
    sampling_rate=0.0355,
    noise_multiplier=1.195967,
    last=moment(9),
)


def test_a_run_that_starts_says_when_it_will_end() -> None:
    assert promise(SPENT, 100) == (
        "noise multiplier 1.196; each round draws each device with 3.55 %; "
        "the run ends after 100 rounds, within epsilon 2 at delta 1e-05"
    )
    assert "after 100 rounds of 300, which the budget permits," in promise(SPENT, 300)


def test_a_run_shows_what_it_has_spent_and_what_it_released_without_noise() -> None:
    (line,) = privacy_lines(SPENT)
    assert line.startswith(
        "privacy: epsilon 1.42 of 2 (delta 1e-05, device level, Poisson 3.55 %, z 1.196, clip 0.5), 61 of 100 rounds"
    )
    assert privacy_lines(replace(SPENT, unprotected=("evaluation of round 3",)))[1:] == [
        "released without noise: evaluation of round 3"
    ]


def test_a_report_lists_releases_their_composition_and_what_it_does_not_cover() -> None:
    unprotected = replace(CHARGE, mechanism="none", releases=1, what="evaluation of round 3")
    report = PrivacyReport(epsilon=1.4213, delta=1e-5, charges=(CHARGE, unprotected), runs_without=("other",))
    assert report_lines(report, None) == [
        "run     started           rounds  epsilon  delta  q       z      released",
        "digits  1970-01-01 00:00  61      1.42     1e-05  3.55 %  1.196  models",
        "digits  1970-01-01 00:00                                         without noise: evaluation of round 3",
        "together: epsilon 1.42 at delta 1e-05",
        "not covered: 1 release without noise; runs without privacy: other",
    ]
    assert len(report_lines(PrivacyReport(epsilon=0, delta=0), 80)) == 1
    assert all(len(line) <= 60 for line in report_lines(report, 60))
