"""The files that a version is loaded from: unsigned, or verified against a signature."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from moonfed.errors import InvalidInput, UntrustedRelease
from moonfed.serving.models.config import CONFIG_FILE, Config, parse_config
from moonfed.serving.models.repository import WARM_UP_DIRECTORY, confined, read_file
from moonfed.signing.release_directory import require_same_config, require_same_file, verified_version
from moonfed.signing.release_signature import ReleaseKey


class VersionFiles:
    """The files of one version of a model. Each is read once."""

    def __init__(self, directory: Path, version: int) -> None:
        self.model, self.version = directory.name, version
        self._directory = directory

    def graph(self, name: str) -> bytes:
        """Read the ONNX file; raise InvalidInput if there is none of that name."""
        path = confined(self._directory / str(self.version), name, "default_model_filename")
        if not path.is_file():
            raise self._no_file(path.name)
        return self._read(path)

    def labels(self, name: str) -> bytes:
        """Read a file of labels; raise InvalidInput if that fails."""
        path = confined(self._directory, name, "label_filename")
        try:
            return self._read(path)
        except OSError as error:
            raise InvalidInput(f"label file {path.name} cannot be read: {error}") from error

    def warm_up_data(self, name: str) -> bytes:
        """Read a file of warm-up data; raise InvalidInput if that fails."""
        path = confined(self._directory / WARM_UP_DIRECTORY, name, "input_data_file")
        try:
            return self._read(path)
        except OSError as error:
            raise InvalidInput(f"model_warmup of '{self.model}' cannot read {path.name}: {error.strerror}") from error

    def _read(self, path: Path) -> bytes:
        return read_file(self._directory.parent, path)

    def _no_file(self, name: str) -> InvalidInput:
        return InvalidInput(f"version {self.version} of model '{self.model}' has no file {name}")


class VerifiedFiles(VersionFiles):
    """The files of a signed version, with the content that was verified."""

    def __init__(self, directory: Path, version: int, config: Config, keys: Sequence[ReleaseKey]) -> None:
        """Verify a version and its configuration; raise UntrustedRelease."""
        super().__init__(directory, version)
        self._files: Mapping[str, bytes] = verified_version(directory, version, keys)
        if CONFIG_FILE not in self._files:
            raise UntrustedRelease(f"version {version} of model '{self.model}' was signed without {CONFIG_FILE}")
        signed = parse_config(self._files[CONFIG_FILE], self.model)
        require_same_config(config, signed, self.model, version)

    def graph(self, name: str) -> bytes:
        """Return the ONNX file."""
        if name not in self._files:
            raise self._no_file(name)
        return self._files[name]

    def labels(self, name: str) -> bytes:
        """Return a file of labels; raise UntrustedRelease if it was changed."""
        confined(self._directory, name, "label_filename")
        return require_same_file(self._directory, self.version, name, self._files)

    def warm_up_data(self, name: str) -> bytes:
        """Raise UntrustedRelease: signatures do not cover such files."""
        raise UntrustedRelease(f"model_warmup of '{self.model}' reads {name!r}, which no signature covers")
