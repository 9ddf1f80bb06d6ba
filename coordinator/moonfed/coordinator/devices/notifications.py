"""Notifications to the devices that participated in a run when it ends."""

from __future__ import annotations

import asyncio

from moonfed.assignment import RunEnded
from moonfed.coordinator.devices.sessions import Sessions
from moonfed.coordinator.records import RunView
from moonfed.coordinator.storage.store import Store


def run_ended(view: RunView, participant: bool) -> RunEnded:
    """Build the message that a run has ended; for participants of a finished run it contains the model."""
    record = view.record
    if record.status != "finished" or not participant:
        return RunEnded(run=record.run)
    return RunEnded(
        run=record.run,
        manifest=record.manifest,
        model=view.model,
        rounds=view.committed,
        signature=record.signature,
    )


async def notify_participants(view: RunView, store: Store, sessions: Sessions) -> None:
    """Notify online devices of a run's end: those that participated in it or keep state under its name.

    The end is already durable, so a device that connects later is notified when it names the run.
    """
    run = view.record.run
    participants = await asyncio.to_thread(store.participants, run)
    for session in sessions.all():
        if session.device in participants or run in session.info.runs:
            session.notify_ended(run_ended(view, session.device in participants))
