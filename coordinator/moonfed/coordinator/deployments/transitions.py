"""Changes of deployments by operators, and of choices by the devices' reports."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from moonfed.coordinator.deployments.state import SETTLED, Choice, Deployment, DeviceView, require_percent
from moonfed.errors import InvalidInput, WrongState
from moonfed.fleet.target_release import ReleaseReport
from moonfed.formatting import number_text


def widen(deployment: Deployment, percent: float) -> Deployment:
    """Return the deployment to more devices; raises InvalidInput for fewer, WrongState if it was rolled back."""
    _require_standing(deployment, "widened")
    require_percent(percent)
    if percent < deployment.percent:
        raise InvalidInput(
            f"percent is {number_text(percent)}; it must be at least {number_text(deployment.percent)}, the share that "
            "was chosen already"
        )
    return replace(deployment, percent=percent)


def pause(deployment: Deployment) -> Deployment:
    """Return the paused deployment; raises WrongState if it was rolled back."""
    _require_standing(deployment, "paused")
    return replace(deployment, status="paused")


def resume(deployment: Deployment) -> Deployment:
    """Return the active deployment; raises WrongState if it was rolled back."""
    _require_standing(deployment, "resumed")
    return replace(deployment, status="active")


def roll_back(deployment: Deployment) -> Deployment:
    """Return the deployment whose devices return to what they had before; idempotent."""
    return replace(deployment, status="rolled-back")


def from_version(version: int, deployments: Collection[Deployment]) -> list[Deployment]:
    """Return the newest standing deployment of a version and all newer ones; raises WrongState if it has none."""
    standing = [deployment for deployment in deployments if deployment.status != "rolled-back"]
    of_version = [deployment.number for deployment in standing if deployment.version == version]
    if not of_version:
        versions = ", ".join(str(one) for one in sorted({deployment.version for deployment in standing}))
        raise WrongState(
            f"to is {version}; it must be a version with a deployment that was not rolled back: {versions or 'none'}"
        )
    return [deployment for deployment in standing if deployment.number >= max(of_version)]


def after_report(view: DeviceView, report: ReleaseReport, now: float) -> DeviceView:
    """Return the view after the device's report on a deployment's version, or on its removal."""
    choices = [
        _reported(choice, report, now)
        if choice.deployment == report.deployment and report.version == view.deployments[choice.deployment].version
        else choice
        for choice in view.choices
    ]
    return replace(view, choices=tuple(choices), installed=report.installed)


def connected(view: DeviceView, fingerprint: str, now: float) -> DeviceView:
    """Return the view after the device has said what it has installed: an earlier report may have been lost.

    A device that has settled a choice decides again if its fingerprint has changed since.
    """
    choices = []
    for choice in view.choices:
        changed = choice
        if view.is_installed(choice) and choice.state in ("pending", "accepted"):
            changed = replace(choice, state="installed", had=True, reason="", fingerprint=fingerprint, time=now)
        elif choice.state in SETTLED and choice.fingerprint != fingerprint:
            changed = replace(choice, state="pending")
        choices.append(changed)
    return replace(view, choices=tuple(choices))


def _reported(choice: Choice, report: ReleaseReport, now: float) -> Choice:
    """Return a choice after a report.

    A device that failed to return to a version tries again when it connects; one that declined it, or that fell back
    from it, does not.
    """
    had = report.outcome == "installed" or (choice.had and report.outcome in ("accepted", "failed"))
    return replace(
        choice,
        state=report.outcome,
        had=had,
        reason=report.reason,
        score=report.score,
        current_score=report.current_score,
        samples=report.samples,
        fingerprint=report.fingerprint,
        time=now,
    )


def _require_standing(deployment: Deployment, verb: str) -> None:
    if deployment.status == "rolled-back":
        raise WrongState(
            f"deployment {deployment.number} of {deployment.name!r} was rolled back; it cannot be {verb}; deploy again"
        )
