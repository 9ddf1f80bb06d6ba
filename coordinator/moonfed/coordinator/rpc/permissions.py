"""The least role of an operator for each Control call. Nobody may make a call that is not listed here."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from moonfed.errors import Denied
from moonfed.transport.identity import ROLES, Certificate, Role


@dataclass(frozen=True, slots=True)
class Permission:
    """The least role for a call; `changes` if the call changes something, so that the audit trail records it."""

    role: Role
    changes: bool


def _reads(role: Role) -> Permission:
    return Permission(role, changes=False)


def _changes(role: Role) -> Permission:
    return Permission(role, changes=True)


PERMISSIONS: Mapping[str, Permission] = {
    # Runs and their models
    "Fetch": _reads("viewer"),
    "ListRuns": _reads("viewer"),
    "GetRun": _reads("viewer"),
    "GetPrivacy": _reads("viewer"),
    "ListRounds": _reads("viewer"),
    "ListRoundOutcomes": _reads("viewer"),
    "WatchRun": _reads("viewer"),
    "ListEvaluations": _reads("viewer"),
    "RecordMetrics": _changes("evaluator"),
    "RecordScore": _changes("evaluator"),
    "EvaluateRun": _changes("engineer"),  # devices work for it, as for a run
    "Upload": _changes("engineer"),
    "StartRun": _changes("engineer"),
    "StopRun": _changes("engineer"),
    "PauseRun": _changes("engineer"),
    "ResumeRun": _changes("engineer"),
    "PruneRun": _changes("engineer"),
    "DeleteRun": _changes("engineer"),
    # Releases and deployments
    "CreateRelease": _changes("engineer"),
    "ListReleases": _reads("viewer"),
    "GetRelease": _reads("viewer"),
    "DeployRelease": _changes("engineer"),
    "WidenDeployment": _changes("engineer"),
    "PauseDeployment": _changes("engineer"),
    "ResumeDeployment": _changes("engineer"),
    "RollBackDeployment": _changes("engineer"),
    "ListDeployments": _reads("viewer"),
    "ListDeployedDevices": _reads("viewer"),
    # Devices and join tokens
    "ListDevices": _reads("viewer"),
    "GetDevice": _reads("viewer"),
    "ListDeviceHistory": _reads("viewer"),
    "RevokeDevice": _changes("admin"),
    "RemoveDevice": _changes("admin"),
    "RenameDevice": _changes("admin"),
    "LabelDevice": _changes("admin"),
    "CreateToken": _changes("admin"),
    "ListTokens": _reads("admin"),
    "RevokeToken": _changes("admin"),
    # Operators
    "CreateOperator": _changes("admin"),
    "ListOperators": _reads("admin"),
    "RevokeOperator": _changes("admin"),
    "ListAuditRecords": _reads("admin"),
}


class NotPermitted(Denied):
    """An operator's role does not permit a call. `details`: what the call would have done."""

    def __init__(self, sentence: str, details: str) -> None:
        super().__init__(sentence)
        self.details = details


def allowed_roles(call: str) -> tuple[Role, ...]:
    """Return the roles that may make a call."""
    permission = PERMISSIONS.get(call)
    return ROLES[ROLES.index(permission.role) :] if permission else ()


def require_permission(operator: Certificate, call: str, details: str) -> None:
    """Raise NotPermitted unless the operator's role permits the call."""
    allowed = allowed_roles(call)
    if operator.role not in allowed:
        needed = f"needs the role {' or '.join(allowed)}" if allowed else "is permitted to nobody"
        raise NotPermitted(f"operator {operator.name!r} has the role {operator.role}; {call} {needed}", details)
