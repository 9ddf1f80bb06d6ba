"""A model's directory in a repository: its configuration, its versions, and their signatures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tritonclient.grpc import model_config_pb2

from moonfed.errors import AlreadyExists, Corrupt, InvalidInput, NotFound, UntrustedRelease, WrongState
from moonfed.files import write_durably
from moonfed.models.repository import CONFIG_FILE, LABELS_FILE, MODEL_FILE, RepositoryModel
from moonfed.release.signing import ReleaseSigner
from moonfed.release.triton_config import (
    GraphInterface,
    from_text,
    labels_text,
    new_config,
    require_fit,
    select_versions,
    to_text,
)
from moonfed.signing.release_directory import (
    read_signature,
    read_version,
    require_same_config,
    require_same_file,
    subject_of,
    verified_version,
)
from moonfed.signing.release_signature import (
    SIGNATURE_FILE,
    ReleaseKey,
    claimed_key,
    release_key,
    require_digests,
    signed_digests,
)
from moonfed.validate import require_whole

MAX_BATCH_SIZE, INSTANCES = 32, 2  # as in Triton on CPUs: one runs while the other assembles its batch


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelRelease:
    """The contents of a new version."""

    interface: GraphInterface
    classes: tuple[str, ...]  # or labels; empty where outputs have no probabilities of any: there is no labels.txt
    files: Mapping[str, bytes]  # by name in the version's directory; includes model.onnx


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedVersion:
    """A version after publishing."""

    path: Path  # REPOSITORY/NAME/VERSION
    version: int
    new: bool  # False: the version already existed with the same model
    kept_config: bool  # an existing, different configuration was not changed


class ModelDirectory(RepositoryModel):
    """One model's directory in a repository, written with its configuration and signatures."""

    def served(self) -> list[int]:
        """List the versions that servers serve under the version policy, oldest first."""
        return select_versions(self.config(), self.versions())

    def model(self, version: int) -> bytes:
        """Read a version's model.onnx; raise NotFound."""
        path = self.path / str(version) / MODEL_FILE
        if not path.is_file():
            raise NotFound(
                f"{self.path} has no version {version}; it has {_listed(self.versions())}",
                field="version",
                value=version,
            )
        return path.read_bytes()

    def config(self) -> model_config_pb2.ModelConfig:
        """Read the configuration; raise NotFound if it is missing, InvalidInput if it cannot be parsed."""
        path = self.path / CONFIG_FILE
        if not path.is_file():
            raise NotFound(f"{self.path} has no {CONFIG_FILE}")
        try:
            return from_text(path.read_text(encoding="utf-8"), str(path))
        except UnicodeDecodeError as error:
            raise InvalidInput(
                f"{path} is not a model configuration: it is not UTF-8", field="encoding", value=path
            ) from error

    def publish(
        self,
        version: int,
        release: ModelRelease,
        *,
        max_batch_size: int = MAX_BATCH_SIZE,
        instances: int = INSTANCES,
        serve_newest: bool = False,
        signer: ReleaseSigner | None = None,
    ) -> PublishedVersion:
        """Write a version, read it back, and write the configuration and the labels unless they exist.

        An existing version with the same model is not changed. `serve_newest`: serve the newest version even after a
        roll-back to an older one. `signer`: sign the version with the configuration and the labels. Raises
        AlreadyExists if another model has that version, InvalidInput if an existing configuration or labels do not fit
        the model, Corrupt if the bytes read back differ.
        """
        config = new_config(
            self.name,
            release.interface,
            labelled=bool(release.classes),
            max_batch_size=max_batch_size,
            instances=instances,
        )
        with self.open_for_writing() as directory:
            new = directory._is_new(version, release)
            kept = directory._write_config(config, release)
            directory._write_labels(release)
            if new:
                directory._write_version(version, directory._signed(version, release.files, signer))
            if serve_newest:
                directory._serve_newest()
        return PublishedVersion(path=self.path / str(version), version=version, new=new, kept_config=kept)

    def roll_back(self, version: int | None = None) -> tuple[int | None, int]:
        """Make servers serve that version, by default the newest before the served one; return both versions.

        It sets the version policy `specific` and deletes nothing. Raises NotFound for a missing version, WrongState if
        there is none before the served one.
        """
        if not self.versions():
            raise NotFound(f"{self.path} has no versions")
        with self.locked():
            served = max(self.served(), default=None)
            target = version if version is not None else self._before(served)
            self.model(target)
            config = self.config()
            config.version_policy.specific.ClearField("versions")
            config.version_policy.specific.versions.append(target)
            self.replace(CONFIG_FILE, to_text(config))
        return served, target

    def prune(self, number: int) -> list[int]:
        """Remove all but the newest `number` versions and the served ones; return the removed ones."""
        with self.locked():
            served = self.served()
            removed = [version for version in self.versions()[:-number] if version not in served]
            for version in removed:
                self.remove_version(version)
        return removed

    def _before(self, served: int | None) -> int:
        if served is None:
            raise WrongState(
                f"{self.path} serves none of its versions; name one with --version; nothing was changed",
                field="served version",
            )
        older = [version for version in self.versions() if version < served]
        if not older:
            raise WrongState(
                f"{self.path} has no version before {served}, which is served; nothing was changed",
                field="version before",
                value=served,
            )
        return older[-1]

    def _serve_newest(self) -> None:
        config = self.config()
        if config.version_policy.WhichOneof("policy_choice") == "specific":
            config.version_policy.latest.num_versions = 1
            self.replace(CONFIG_FILE, to_text(config))

    def _is_new(self, version: int, release: ModelRelease) -> bool:
        """Return whether the version is new; raise AlreadyExists if another model has it."""
        require_whole("version", version, 1)
        directory = self.path / str(version)
        if not directory.exists():
            return True
        if not (directory / MODEL_FILE).is_file() or self.model(version) != release.files[MODEL_FILE]:
            raise AlreadyExists(
                f"version {version} in {self.path} holds another model; choose another --version",
                field="version",
                value=version,
            )
        return False

    def _write_config(self, config: model_config_pb2.ModelConfig, release: ModelRelease) -> bool:
        """Write the configuration unless it exists; return whether an existing one differs."""
        if not (self.path / CONFIG_FILE).exists():
            self.replace(CONFIG_FILE, to_text(config))
            return False
        found = self.config()
        require_fit(found, self.name, release.interface, str(self.path / CONFIG_FILE))
        found.version_policy.CopyFrom(config.version_policy)  # which roll-backs change
        return bool(found != config)

    def _write_labels(self, release: ModelRelease) -> None:
        if not release.classes:
            return
        path, text = self.path / LABELS_FILE, labels_text(release.classes)
        if not path.exists():
            self.replace(LABELS_FILE, text)
        elif path.read_text(encoding="utf-8").split("\n") != text.split("\n"):
            raise InvalidInput(
                f"{path} names other classes than the model's, {', '.join(release.classes)}",
                field="classes",
                value=path,
            )

    def sign(self, version: int, signer: ReleaseSigner) -> None:
        """Sign a version again, with the current configuration and labels.

        Raises NotFound for a missing version, UntrustedRelease if any other file has changed since this key signed the
        version.
        """
        with self.locked():
            self.model(version)
            directory = self.path / str(version)
            files = read_version(directory)
            shared = self._shared_files()
            subject, old = subject_of(self.name, version), read_signature(directory)
            key = release_key(signer.key)
            if old is not None and claimed_key(old) == key.id:
                signed = signed_digests(subject, old, [key])
                own = {name: content for name, content in files.items() if name not in shared}
                require_digests(own, {name: each for name, each in signed.items() if name not in shared}, subject)
            files |= shared
            files[SIGNATURE_FILE] = signer.sign(files, self.name, version)
            for name in (*shared, SIGNATURE_FILE):
                write_durably(directory / name, files[name])

    def require_verified(self, version: int, keys: Sequence[ReleaseKey]) -> Mapping[str, bytes]:
        """Return the files of a version that one of the keys signed with the current configuration and labels.

        Raises UntrustedRelease.
        """
        files = verified_version(self.path, version, keys)
        if CONFIG_FILE not in files:
            raise UntrustedRelease(
                f"version {version} in {self.path} was signed without {CONFIG_FILE}; sign it again",
                field="version",
                value=version,
            )
        signed = from_text(files[CONFIG_FILE].decode("utf-8", "replace"), f"the signed {CONFIG_FILE}")
        require_same_config(self.config(), signed, self.name, version)
        for name in self._label_files():
            require_same_file(self.path, version, name, files)
        return files

    def _signed(self, version: int, files: Mapping[str, bytes], signer: ReleaseSigner | None) -> Mapping[str, bytes]:
        if signer is None:
            return files
        signed = {**files, **self._shared_files()}
        return {**signed, SIGNATURE_FILE: signer.sign(signed, self.name, version)}

    def _shared_files(self) -> dict[str, bytes]:
        """Read the files shared by all versions, which are signed with each version."""
        return {name: (self.path / name).read_bytes() for name in (CONFIG_FILE, *self._label_files())}

    def _label_files(self) -> list[str]:
        return sorted({output.label_filename for output in self.config().output if output.label_filename})

    def _write_version(self, version: int, files: Mapping[str, bytes]) -> None:
        with self.new_version(version) as directory:
            for name, content in files.items():
                (directory / name).write_bytes(content)
            if any((directory / name).read_bytes() != content for name, content in files.items()):
                raise Corrupt(
                    f"version {version} of model {self.name!r} differs from what was written; it was removed",
                    field="version",
                    value=version,
                )


def _listed(versions: Sequence[int]) -> str:
    return ", ".join(map(str, versions)) or "none"
