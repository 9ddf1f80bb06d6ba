"""An inference server with any settings: `python -m tests.support.limited_server REPOSITORY JSON`.

`open_files` among them is the process's limit on open files.
"""

from __future__ import annotations

import json
import resource
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

from moonfed.serving.requests.limits import RequestLimits
from moonfed.serving.server import serve
from moonfed.serving.server_settings import ServerSettings


def main() -> None:
    repository, document = sys.argv[1:]
    settings: dict[str, Any] = json.loads(document)
    if files := settings.pop("open_files", 0):
        resource.setrlimit(resource.RLIMIT_NOFILE, (files, files))
    limits = RequestLimits(**settings.pop("limits", {}))
    for name in ("tls_key", "tls_certificate"):
        settings[name] = Path(settings[name]) if name in settings else None
    serve(
        ServerSettings(
            repository=Path(repository), limits=limits, grpc_port=0, http_port=0, metrics_port=0, **settings
        ),
        lambda ports: print(json.dumps({f"{name}_port": port for name, port in asdict(ports).items()}), flush=True),
    )


if __name__ == "__main__":
    main()
