"""Output of `moonfed-client profile`: a table for people, JSON for scripts."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

from moonfed.command_line.programs import print_json
from moonfed.edge_client.profile.measure import Profile
from moonfed.edge_client.profile.task import Times
from moonfed.edge_client.resources.memory_estimate import Need
from moonfed.formatting import count
from moonfed.sizes import human


def print_profile(found: Profile, *, as_json: bool) -> None:
    """Print the profile; raise the reason if the device cannot participate."""
    if as_json:
        print_json(profile_document(found))
    else:
        print("\n".join(profile_lines(found)))
    if found.rejection is not None:
        sys.stdout.flush()
        raise found.rejection


def print_progress(text: str) -> None:
    """Print to standard error, apart from the result."""
    print(f"{text} …", file=sys.stderr, flush=True)


def profile_document(found: Profile) -> dict[str, Any]:
    """Return JSON values in bytes and seconds; null for unmeasured values."""
    return {
        "can_participate": found.rejection is None,
        "reason": str(found.rejection) if found.rejection else "",
        "bundle": {"name": found.manifest.name, "model": found.manifest.model, "method": found.manifest.method},
        "platform": found.platform,
        "precision": found.precision,
        "memory_format": found.memory_format,
        "samples": found.samples,
        "batch_size": found.batch_size,
        "epochs": found.epochs,
        "steps": found.steps,
        "seconds": _seconds_document(found.times, found.round_seconds),
        "memory": _memory_document(found),
    }


def _seconds_document(times: Times | None, round_seconds: float | None) -> dict[str, float | None] | None:
    if times is None:
        return None
    return {
        "step": times.step,
        "step_with_references": times.step_with_references,
        "references": times.references,
        "evaluation": times.evaluation,
        "round": round_seconds,
    }


def _memory_document(found: Profile) -> dict[str, Any]:
    peak = found.peak
    return {
        "need": _need_document(found.need),
        "available": found.available.host if found.available else None,
        "available_on_accelerator": found.available.accelerator if found.available else None,
        "max_memory": found.limit,
        "measured": None if peak is None else {"peak": peak.host, "estimated": peak.estimated_host},
        "measured_on_accelerator": None
        if peak is None or peak.accelerator is None
        else {"peak": peak.accelerator, "estimated": peak.estimated_accelerator},
    }


def _need_document(need: Need | None) -> dict[str, Any] | None:
    return None if need is None else {"total": need.total, "parts": need.parts()}


def profile_lines(found: Profile) -> list[str]:
    """Return a readable table."""
    rows = [*_subject(found), *_times(found), *_memory(found)]
    width = max(len(name) for name, _ in rows)
    return [f"{name.ljust(width)}  {value}".rstrip() for name, value in rows]


def _subject(found: Profile) -> Iterator[tuple[str, str]]:
    manifest, platform = found.manifest, found.platform
    yield "bundle", f"{manifest.name}: {manifest.model}, {manifest.method}"
    yield "device", ", ".join(f"{name} {word}" for name, word in platform.items() if name != "memory")
    yield "runs in", f"{found.precision}, {found.memory_format}"
    yield (
        "round",
        f"{count(found.samples, 'sample')} in batches of {found.batch_size}, {count(found.epochs, 'epoch')}: "
        f"{count(found.steps, 'step')}",
    )


def _times(found: Profile) -> Iterator[tuple[str, str]]:
    times = found.times
    if times is None:
        return
    yield "a step", _milliseconds(times.step)
    if times.references is not None and times.step_with_references is not None:
        yield "with its references", _milliseconds(times.step_with_references)
        yield "references of a batch", _milliseconds(times.references)
    yield "evaluation of a batch", _milliseconds(times.evaluation)
    if found.round_seconds is not None:
        yield "the round", f"about {_duration(found.round_seconds)} of local training"


def _memory(found: Profile) -> Iterator[tuple[str, str]]:
    if found.need is not None:
        parts = ", ".join(f"{name} {human(size)}" for name, size in found.need.parts().items() if size)
        yield "memory needed", f"about {human(found.need.total)} ({parts})"
    if found.available is not None and found.available.host is not None:
        accelerator = found.available.accelerator
        there = f", {human(accelerator)} on the accelerator" if accelerator is not None else ""
        given = f"; --max-memory {human(found.limit)}" if found.limit is not None else ""
        yield "memory available", f"{human(found.available.host)}{there}{given}"
    if found.peak is not None:
        yield "memory measured", f"{human(found.peak.host)} at most; estimated {human(found.peak.estimated_host)}"
        if found.peak.accelerator is not None and found.peak.estimated_accelerator is not None:
            estimated = human(found.peak.estimated_accelerator)
            yield "on the accelerator", f"{human(found.peak.accelerator)} at most; estimated {estimated}"
    yield "can participate", "no" if found.rejection else "yes"


def _milliseconds(seconds: float) -> str:
    return f"{1000 * seconds:.2f} ms"


def _duration(seconds: float) -> str:
    """Format seconds, such as 12 s, 3.5 min, 2.1 h."""
    if seconds < 120:
        return f"{seconds:.1f} s" if seconds < 10 else f"{seconds:.0f} s"
    return f"{seconds / 60:.1f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"
