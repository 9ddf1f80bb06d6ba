"""Tells the devices that took part in a run that it is over."""

from __future__ import annotations

import asyncio

from moonfed.assignment import RunEnded
from moonfed.coordinator.devices.sessions import Sessions
from moonfed.coordinator.records import RunView
from moonfed.coordinator.storage.store import Store


def ending(view: RunView) -> RunEnded:
    """What devices are told of a run that has ended. Only a finished one leaves a model that is meant to be used."""
    record = view.record
    if record.status != "finished":
        return RunEnded(run=record.run)
    return RunEnded(run=record.run, manifest=record.manifest, model=view.model, rounds=view.committed)


async def announce(view: RunView, store: Store, attendance: Sessions) -> None:
    """Tells the attending devices that took part in a run, or keep state under its name, that it has ended.

    The end is durable before, so whoever attends from now on is told when it names the run.
    """
    run = view.record.run
    took_part = await asyncio.to_thread(store.participants, run)
    for session in attendance.sessions():
        if session.device in took_part or run in session.introduction.runs:
            session.tell_ended(ending(view))
