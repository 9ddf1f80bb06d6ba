"""The privacy budget of a run: its noise and its rounds, and what of it is spent."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import lru_cache
from operator import attrgetter

from moonfed.control.privacy import GAUSSIAN, NO_NOISE, PrivacyCharge, PrivacyReport, PrivacySpent
from moonfed.control.run_settings import RunSettings
from moonfed.coordinator.privacy.accountant import Releases, epsilon, noise_multiplier, rounds_within
from moonfed.coordinator.privacy.ledger_entry import LedgerTotal
from moonfed.coordinator.privacy.mechanism import PrivateRound, require_sigma_b
from moonfed.errors import InvalidInput
from moonfed.formatting import moment

_ORDER = attrgetter("created", "run", "mechanism", "what", "sampling_rate", "noise_multiplier", "delta")  # of charges


def with_noise(settings: RunSettings) -> RunSettings:
    """Return the settings with the noise multiplier, and with no more rounds than the budget permits.

    By default the multiplier is the smallest that permits all rounds. Raises InvalidInput if not one round is
    permitted, or for a sigma_b that is too small.
    """
    if not settings.private:
        return settings
    rate, wanted, delta = settings.sampling_rate, _number(settings, "epsilon"), _number(settings, "delta")
    multiplier = _number(settings, "noise_multiplier") or noise_multiplier(rate, settings.rounds, wanted, delta)
    rounds = rounds_within(rate, multiplier, wanted, delta, at_most=settings.rounds)
    if not rounds:
        one = epsilon([Releases(sampling_rate=rate, noise_multiplier=multiplier)], delta)
        raise InvalidInput(
            field="privacy.noise_multiplier",
            value=multiplier,
            rest=f"; one round with it costs epsilon {one:.3g}, and the budget is {wanted:g}",
        )
    if sigma_b := _number(settings, "sigma_b"):
        require_sigma_b(multiplier, sigma_b)
    return replace(settings, rounds=rounds, privacy={**settings.privacy, "noise_multiplier": multiplier})


def private_round(settings: RunSettings, attempt: int, clip_norm: float) -> PrivateRound | None:
    """Return the mechanism of an attempt at a round; None without privacy."""
    if not settings.private:
        return None
    return PrivateRound(
        attempt=attempt,
        sampling_rate=settings.sampling_rate,
        expected=settings.cohort.of(settings.population),
        noise_multiplier=_number(settings, "noise_multiplier"),
        clip=clip_norm,
        sigma_b=_number(settings, "sigma_b"),
    )


def spent(settings: RunSettings, totals: Sequence[LedgerTotal]) -> PrivacySpent | None:
    """Return what a run has spent, by its totals, in the order of their last releases; None without privacy."""
    if not settings.private:
        return None
    charged = [total for total in totals if total.mechanism == GAUSSIAN]
    return PrivacySpent(
        epsilon=_composed(charged, _number(settings, "delta")),
        budget=_number(settings, "epsilon"),
        delta=_number(settings, "delta"),
        sampling_rate=settings.sampling_rate,
        noise_multiplier=_number(settings, "noise_multiplier"),
        clip_norm=charged[-1].next_clip_norm if charged else settings.clip_norm,
        releases=sum(total.releases for total in charged),
        rounds=settings.rounds,
        unprotected=tuple(total.what for total in totals if total.mechanism == NO_NOISE),
    )


def report(totals: Iterable[LedgerTotal], runs_without: Sequence[str], delta: float = 0.0) -> PrivacyReport:
    """Compose the releases of several runs at `delta`; 0: the smallest of theirs."""
    ordered = sorted(totals, key=_ORDER)
    charged = [total for total in ordered if total.mechanism == GAUSSIAN]
    at = delta or min((total.delta for total in charged), default=0.0)
    return PrivacyReport(
        epsilon=_composed(charged, at),
        delta=at,
        charges=tuple(map(_charge, ordered)),
        runs_without=tuple(runs_without),
    )


def _charge(total: LedgerTotal) -> PrivacyCharge:
    return PrivacyCharge(
        run=total.run,
        created=moment(total.created),
        mechanism=total.mechanism,
        releases=total.releases,
        epsilon=_composed([total], total.delta) if total.mechanism == GAUSSIAN else 0.0,
        delta=total.delta,
        sampling_rate=total.sampling_rate,
        noise_multiplier=total.noise_multiplier,
        what=total.what,
        last=moment(total.committed),
    )


def _composed(totals: Iterable[LedgerTotal], delta: float) -> float:
    """Return the epsilon of protected releases together; 0 if there are none."""
    rounds = Counter[tuple[float, float]]()
    for total in totals:
        rounds[total.sampling_rate, total.noise_multiplier] += total.releases
    counted = tuple((rate, noise, number) for (rate, noise), number in sorted(rounds.items()))
    return _epsilon(counted, delta) if counted else 0.0


@lru_cache(maxsize=256)  # a run is shown far more often than it is charged
def _epsilon(counted: tuple[tuple[float, float, int], ...], delta: float) -> float:
    return epsilon(
        [Releases(sampling_rate=rate, noise_multiplier=noise, rounds=rounds) for rate, noise, rounds in counted], delta
    )


def _number(settings: RunSettings, key: str) -> float:
    """Return a number of the settings' privacy; 0 if it is not given."""
    return float(settings.privacy.get(key, 0.0))
