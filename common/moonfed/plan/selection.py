"""The choice between a bundle's plans: TorchScript where this machine runs it, graphs of operators elsewhere.

Nothing here imports torch: a device's agent and command lines choose, too.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from functools import cache

from moonfed.bundle.manifest import Manifest, plan_files
from moonfed.errors import InvalidInput, VersionMismatch
from moonfed.version import GRAPH_PLAN_INTERFACE, PLAN_INTERFACE

AUTO = "auto"
# The interfaces that each format permits, the preferred one first.
FORMATS = {
    AUTO: (PLAN_INTERFACE, GRAPH_PLAN_INTERFACE),
    "torchscript": (PLAN_INTERFACE,),
    "graph": (GRAPH_PLAN_INTERFACE,),
}
PYTHON_WITHOUT = (3, 14)  # which TorchScript does not support
TORCH_WITH = (2, 13)  # the newest torch that is known to have it; a later one is tried in a process of its own
TRIAL = """
import io, warnings
warnings.simplefilter("ignore")
import torch
archive = io.BytesIO()
torch.jit.save(torch.jit.trace(torch.nn.Identity(), torch.zeros(1)), archive)
archive.seek(0)
torch.jit.load(archive)
"""
TRIAL_SECONDS = 120.0  # the import alone takes half a minute on small boards


def parse_format(text: str) -> str:
    """Return a format of plans; raise InvalidInput for another word."""
    if text not in FORMATS:
        *others, last = map(repr, FORMATS)
        raise InvalidInput(field="plan-format", value=text, allowed=f"{', '.join(others)} or {last}")
    return text


def runnable_interfaces(plan_format: str, *, torchscript: bool) -> tuple[str, ...]:
    """Return the plan interfaces that a machine runs, the preferred one first.

    `torchscript`: whether it runs TorchScript; a user who asks for that by name is not contradicted.
    """
    usable = plan_format != AUTO or torchscript
    return tuple(one for one in FORMATS[plan_format] if one == GRAPH_PLAN_INTERFACE or usable)


@cache
def local_interfaces() -> tuple[str, ...]:
    """Return the plan interfaces that this machine runs by default; see `runnable_interfaces`."""
    from importlib.metadata import PackageNotFoundError, version  # heavy for a device's agent, which asks elsewhere

    try:
        torchscript = torchscript_is_supported(version("torch"))
    except PackageNotFoundError:
        torchscript = False
    return runnable_interfaces(AUTO, torchscript=torchscript)


def choose_plan(manifest: Manifest, runnable: Sequence[str], required: str = "") -> str:
    """Return the interface by which a machine runs a bundle's plan; raise VersionMismatch naming what is missing.

    `runnable`: see `runnable_interfaces`. `required`: the only interface that will do; empty: any.
    """
    offered = plan_files(manifest)
    for interface in runnable:
        if interface in offered and interface == (required or interface):
            return interface
    wanted = (required,) if required else tuple(runnable)
    if GRAPH_PLAN_INTERFACE in wanted and PLAN_INTERFACE not in wanted and GRAPH_PLAN_INTERFACE not in offered:
        raise lacks_graphs(manifest)
    needed = required or ", ".join(offered)
    raise VersionMismatch(
        f"the plan's interface is {needed}; this device runs {' and '.join(runnable)}", field="interface", value=needed
    )


def lacks_graphs(manifest: Manifest) -> VersionMismatch:
    """Return the error for a bundle whose plan is in TorchScript only, with the bundle's own reason."""
    why = f", because {manifest.plan.untraceable}" if manifest.plan.untraceable else ""
    return VersionMismatch(
        f"the bundle {manifest.name!r} has no graph plan{why}",
        field="plan",
        value=manifest.name,
    )


def torchscript_is_supported(torch: str) -> bool:
    """Return whether this Python, and the installed torch of that version, run TorchScript."""
    if sys.version_info >= PYTHON_WITHOUT:
        return False
    numbers = tuple(int(part) for part in torch.split(".")[:2] if part.isdigit())
    return numbers <= TORCH_WITH or _trial_succeeds()


def _trial_succeeds() -> bool:
    """Trace, save and load a TorchScript module in a process of its own."""
    import subprocess  # seldom needed

    try:
        trial = subprocess.run([sys.executable, "-c", TRIAL], capture_output=True, timeout=TRIAL_SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return False
    return trial.returncode == 0
