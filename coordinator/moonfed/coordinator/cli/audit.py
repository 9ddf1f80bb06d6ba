"""moonfed-coordinator audit: the audit trail of changes and denied calls."""

from __future__ import annotations

from datetime import datetime, timezone
from typing import TYPE_CHECKING, Annotated

import typer

from moonfed.command_line.programs import print_json
from moonfed.formatting import count
from moonfed.transport.operator_options import FindEndpoint, operator_options

if TYPE_CHECKING:
    from moonfed.control.operators import AuditRecord

NEWEST = 20  # records by default: 40 lines, unless reasons are long


@operator_options
def audit(
    endpoint: FindEndpoint,
    name: Annotated[str, typer.Option(help="Only records of this operator or device.", show_default=False)] = "",
    call: Annotated[str, typer.Option(help="Only records of this call, such as StopRun.", show_default=False)] = "",
    denied: Annotated[bool, typer.Option("--denied", help="Only records of denied calls.")] = False,
    since: Annotated[
        str,
        typer.Option(
            metavar="TIME", help="Only records since this time (UTC), such as 2026-11-22T18:00.", show_default=False
        ),
    ] = "",
    newest: Annotated[
        int | None,
        typer.Option(min=1, help="Number of newest records. Default: 20; with --json, all.", show_default=False),
    ] = None,
    follow: Annotated[bool, typer.Option("--follow", help="Then print new records until interrupted.")] = False,
    json: Annotated[bool, typer.Option("--json", help="Print one line of JSON per record.")] = False,
) -> None:
    """Print the audit trail: who changed or attempted what, when, and from where.

    Example: moonfed-coordinator audit --denied --since 2026-11-22
    """
    from moonfed.client import Coordinator
    from moonfed.control.document import document
    from moonfed.control.operators import AuditRecord
    from moonfed.coordinator.cli.layout import terminal_width
    from moonfed.v1 import control_pb2

    request = control_pb2.ListAuditRecordsRequest(
        name=name,
        call=call,
        denied=denied,
        since=parse_time("since", since) if since else 0.0,
        newest=(0 if json else NEWEST) if newest is None else newest,
        follow=follow,
    )
    with Coordinator(endpoint()) as client:
        for record in client.connection.each(AuditRecord, "ListAuditRecords", request, timeout=None):
            if json:
                print_json(document(record))
            else:
                print("\n".join(record_lines(record, terminal_width())), flush=True)


def parse_time(field: str, text: str) -> float:
    """Return the seconds since the epoch of an ISO 8601 time, in UTC unless it names a zone; raises InvalidInput."""
    from moonfed.errors import InvalidInput

    try:
        parsed = datetime.fromisoformat(text.replace("Z", "+00:00"))
    except ValueError as error:
        example = "2026-11-22T18:00"
        raise InvalidInput(field=field, value=text, allowed=f"a time in ISO 8601, such as {example}") from error
    return (parsed if parsed.tzinfo else parsed.replace(tzinfo=timezone.utc)).timestamp()


def record_lines(record: AuditRecord, width: int) -> list[str]:
    """Format an audit record: when, the outcome, who and from where; then, indented, what."""
    from moonfed.coordinator.cli.format import moment
    from moonfed.coordinator.cli.layout import wrap

    who = _caller(record) + (f" at {record.address}" if record.address else "")
    what = ": ".join(text for text in (record.details or record.call, record.reason) if text)
    calls = f" ({count(record.count, 'call')})" if record.count > 1 else ""
    head = f"{moment(record.time)}  {record.outcome:<7}  {who}"
    return [*wrap(head, width), *wrap(f"  {what}{calls}", width)]


def _caller(record: AuditRecord) -> str:
    if record.name:
        return f"{record.name} ({record.role or 'no certificate'})"
    return record.role or ("no certificate" if record.call else "other callers")
