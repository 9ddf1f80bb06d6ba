"""Notifications to the devices that participated in a run when it ends."""

from __future__ import annotations

import asyncio

from moonfed.control.runs import Run
from moonfed.coordinator.devices.sessions import Sessions
from moonfed.coordinator.storage.store import Store
from moonfed.fleet.assignment import RunEnded


async def notify_participants(view: Run, store: Store, sessions: Sessions) -> None:
    """Notify online devices of a run's end: those that participated in it or keep state under its name.

    They delete that state, and nothing else: only releases change what a device predicts with. The end is already
    durable, so a device that connects later is notified when it names the run.
    """
    run = view.run
    participants = await asyncio.to_thread(store.participants, run)
    for session in sessions.all():
        if session.device in participants or run in session.info.runs:
            session.notify_ended(RunEnded(run=run))
