"""Formatting of what runs spend of differential privacy."""

from __future__ import annotations

from moonfed.control.privacy import NO_NOISE, PrivacyCharge, PrivacyReport, PrivacySpent
from moonfed.coordinator.cli.layout import table, wrap
from moonfed.formatting import count

WITHOUT = "without noise"


def promise(spent: PrivacySpent, wanted: int) -> str:
    """Describe what a run that starts will spend; `wanted`: the rounds that were asked for."""
    cut = f" of {wanted:,}, which the budget permits" if spent.rounds < wanted else ""
    return (
        f"noise multiplier {spent.noise_multiplier:.4g}; each round draws each device with "
        f"{_share(spent.sampling_rate)}; the run "
        f"ends after {count(spent.rounds, 'round')}{cut}, within epsilon {spent.budget:g} at delta {spent.delta:g}"
    )


def privacy_lines(spent: PrivacySpent) -> list[str]:
    """Describe what a run has spent, and what it released without noise."""
    mechanism = f"Poisson {_share(spent.sampling_rate)}, z {spent.noise_multiplier:.4g}, clip {spent.clip_norm:.4g}"
    lines = [
        f"privacy: epsilon {spent.epsilon:.3g} of {spent.budget:g} (delta {spent.delta:g}, device level, {mechanism}), "
        f"{spent.releases:,} of {count(spent.rounds, 'round')}; the operator of the coordinator sees every update"
    ]
    return lines + [f"released without noise: {', '.join(spent.unprotected)}"] * bool(spent.unprotected)


def report_lines(report: PrivacyReport, width: int | None) -> list[str]:
    """Format what several runs have spent, one line for each way of releasing, and all together."""
    heads = ["run", "started", "rounds", "epsilon", "delta", "q", "z", "released"]
    lines = table(heads, [_row(charge) for charge in report.charges], width) if report.charges else []
    lines += [f"together: epsilon {report.epsilon:.3g} at delta {report.delta:g}"] if report.delta else []
    unprotected = sum(charge.mechanism == NO_NOISE for charge in report.charges)
    gaps = [f"{count(unprotected, 'release')} {WITHOUT}"] if unprotected else []
    gaps += [f"runs without privacy: {', '.join(report.runs_without)}"] if report.runs_without else []
    lines += [f"not covered: {'; '.join(gaps)}"] if gaps else []
    lines = lines or ["no run has, or had, differential privacy"]
    return lines if width is None else [part for line in lines for part in wrap(line, width)]


def _row(charge: PrivacyCharge) -> list[str]:
    started = charge.created.strftime("%Y-%m-%d %H:%M")
    if charge.mechanism == NO_NOISE:
        return [charge.run, started, "", "", "", "", "", f"{WITHOUT}: {charge.what}"]
    figures = [f"{charge.epsilon:.3g}", f"{charge.delta:g}", _share(charge.sampling_rate)]
    return [charge.run, started, f"{charge.releases:,}", *figures, f"{charge.noise_multiplier:.4g}", "models"]


def _share(rate: float) -> str:
    return f"{rate * 100:.3g} %"
