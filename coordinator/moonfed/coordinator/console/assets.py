"""The files that browsers load: a fixed list, read once, so that no path in a request ever reaches the disk."""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import sha256
from importlib.resources import files

from starlette.requests import Request
from starlette.responses import Response

TYPES = {
    ".css": "text/css; charset=utf-8",
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
SHELL = "index.html"


class Asset:
    """A file's content, type and tag."""

    def __init__(self, name: str, content: bytes) -> None:
        self.content = content
        self.type = next(kind for suffix, kind in TYPES.items() if name.endswith(suffix))
        self.tag = f'"{sha256(content).hexdigest()[:32]}"'

    def response(self, request: Request) -> Response:
        """Return the file, or nothing if the browser has it."""
        headers = {"ETag": self.tag}
        if request.headers.get("if-none-match") == self.tag:
            return Response(status_code=304, headers=headers)
        return Response(self.content, media_type=self.type, headers=headers)


def load_assets() -> Mapping[str, Asset]:
    """Return all files by their paths below static/."""
    root = files(__package__) / "static"
    found = {}
    for directory, prefix in ((root, ""), (root / "vendor", "vendor/")):
        for entry in directory.iterdir():
            if entry.is_file() and entry.name.endswith(tuple(TYPES)):
                found[prefix + entry.name] = Asset(entry.name, entry.read_bytes())
    return found
