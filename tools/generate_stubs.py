"""Generate proto/moonfed/v1's stubs from its .proto files: `python tools/generate_stubs.py [OUTPUT]`."""

from __future__ import annotations

import importlib.resources
import sys
from pathlib import Path

from grpc_tools import protoc

ROOT = Path(__file__).parent.parent / "proto"
SERVICES = ("enrolment", "fleet", "control")


def generate(output: Path) -> None:
    """Generate messages, services and their type stubs below `output`."""
    scripts = Path(sys.executable).parent
    well_known = importlib.resources.files("grpc_tools") / "_proto"
    common = [
        "protoc",
        f"-I{ROOT}",
        f"-I{well_known}",
        f"--plugin=protoc-gen-mypy={scripts / 'protoc-gen-mypy'}",
        f"--plugin=protoc-gen-mypy_grpc={scripts / 'protoc-gen-mypy_grpc'}",
    ]
    messages = sorted(str(path.relative_to(ROOT)) for path in (ROOT / "moonfed/v1").glob("*.proto"))
    services = [f"moonfed/v1/{name}.proto" for name in SERVICES]
    _run([*common, f"--python_out={output}", f"--mypy_out=quiet:{output}", *messages])
    _run([*common, f"--grpc_python_out={output}", f"--mypy_grpc_out=quiet:{output}", *services])


def _run(arguments: list[str]) -> None:
    if protoc.main(arguments) != 0:
        raise SystemExit("protoc failed; its message is above")


if __name__ == "__main__":
    generate(Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT)
