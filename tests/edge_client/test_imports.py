"""A device carries nothing of the other rooms, and its idle process nothing heavy."""

from __future__ import annotations

import subprocess
import sys

PARENT = "edge_client.attend, edge_client.session, edge_client.child"
CHILD = "edge_client.worker, edge_client.trainer, edge_client.training"


def packages_after(modules: str) -> set[str]:
    script = f"import sys, {modules}; print(*{{name.partition('.')[0] for name in sys.modules}})"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    return set(done.stdout.split())


def test_the_parent_is_light() -> None:
    found = packages_after(PARENT)
    assert {"edge_client", "moonfed", "grpc", "cryptography"} <= found
    assert not found & {"torch", "numpy", "typer", "PIL", "export", "coordinator", "experiments"}


def test_the_child_imports_no_other_room() -> None:
    found = packages_after(CHILD)
    assert {"edge_client", "moonfed", "torch", "numpy"} <= found
    assert not found & {"grpc", "typer", "export", "coordinator", "experiments"}


def test_the_child_starts_without_torch() -> None:
    assert "torch" not in packages_after("edge_client.worker")
