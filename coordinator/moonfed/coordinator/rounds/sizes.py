"""Numbers of devices that a run draws, of updates that close its rounds, and of models that they need."""

from __future__ import annotations

import math

from moonfed.control.run_settings import RunSettings


def fewest_updates(settings: RunSettings) -> int:
    """Return the smallest number of updates that a round may close with."""
    if settings.asynchronous:
        return settings.quorum.of(settings.asynchronous)
    return updates_required(settings, devices_needed(settings))


def devices_needed(settings: RunSettings) -> int:
    """Return the eligible devices online that a round needs to open, so that its cohort can reach the quorum."""
    needed = settings.minimum_devices
    if settings.asynchronous:
        return max(needed, settings.asynchronous)  # each has one update for each model
    if settings.private:
        return max(needed, math.ceil(round(updates_required(settings, 0) / settings.sampling_rate, 9)))
    if settings.quorum.count is not None:
        needed = max(needed, math.floor((settings.quorum.count - 1) / (settings.cohort.fraction or 1.0)))
        while cohort_size(settings, needed) < settings.quorum.count:
            needed += 1
    return needed


def models_needed(settings: RunSettings) -> int:
    """Return the number of newest global models that the open round's devices may request."""
    return 1 + settings.max_staleness if settings.asynchronous else 1


def states_needed(settings: RunSettings) -> int:
    """Return how many newest global states must stay intact; if the newest is damaged, that before it is used."""
    return max(2, models_needed(settings))


def cohort_size(settings: RunSettings, online: int) -> int:
    """Return the updates of a round with that many online devices; a fixed number is capped by them."""
    return min(settings.cohort.of(online), online)


def drawn(settings: RunSettings, online: int) -> int:
    """Return the number of devices drawn from that many online ones, over-selection included."""
    return min(math.ceil(round(cohort_size(settings, online) * (1 + settings.over_selection), 9)), online)


def updates_wanted(settings: RunSettings, drawn: int) -> int:
    """Return the number of updates that closes a round for which `drawn` devices were drawn.

    This is the cohort's size at the draw, which follows from `drawn` alone.
    """
    return max(math.floor(round(drawn / (1 + settings.over_selection), 9)), cohort_size(settings, drawn))


def updates_required(settings: RunSettings, drawn: int) -> int:
    """Return the quorum of a round for which `drawn` devices were drawn; with privacy, whatever was drawn."""
    expected = settings.cohort.count if settings.private else None
    return settings.quorum.of(expected or updates_wanted(settings, drawn))


def updates_closing(settings: RunSettings, cohort: int, joined: int = 0) -> int:
    """Return the number of updates that closes a round; in asynchronous rounds, whatever was drawn.

    `cohort`: its devices, of which `joined` after the draw: replacements, or with privacy, drawn as they came online.
    """
    if settings.private:
        return cohort
    return settings.asynchronous or updates_wanted(settings, cohort - joined)
