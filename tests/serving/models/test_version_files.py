"""Signed versions on a server: a version that was changed after signing is not loaded, and the file is named."""

from __future__ import annotations

import builtins
import re
import shutil
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from moonfed.errors import InvalidInput, UntrustedRelease
from moonfed.release.repository import ModelDirectory, ModelRelease
from moonfed.release.signing import ReleaseSigner
from moonfed.release.triton_config import read_interface, to_text
from moonfed.serving.models.manager import ModelManager, ServingSettings
from moonfed.serving.models.version_files import VerifiedFiles
from moonfed.signing.release_directory import read_version
from moonfed.signing.release_signature import SIGNATURE_FILE, read_private_key, read_release_key, sign_release
from tests.support.model_repositories import linear
from tests.support.server_process import get, served

CLASSES = ("red", "green", "blue")
Change = Callable[[ModelDirectory], object]


@pytest.fixture
def key(tmp_path: Path) -> Path:
    return write_key(tmp_path / "key.pem")


def write_key(path: Path) -> Path:
    key = Ed25519PrivateKey.generate()
    path.write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    path.with_suffix(".pub").write_bytes(
        key.public_key().public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    )
    return path


def publish(directory: ModelDirectory, version: int, signer: ReleaseSigner | None) -> None:
    graph = linear(seed=version)
    files = {"model.onnx": graph, "MODEL_CARD.md": b"# card"}
    directory.publish(
        version, ModelRelease(interface=read_interface(graph, "x"), classes=CLASSES, files=files), signer=signer
    )


@pytest.fixture
def directory(tmp_path: Path, key: Path) -> ModelDirectory:
    made = ModelDirectory(tmp_path / "models", "linear")
    for version in (1, 2):
        publish(made, version, ReleaseSigner(key))
    return made


def verifying(directory: ModelDirectory, key: Path) -> ModelManager:
    return ModelManager(directory.path.parent, ServingSettings(verify_keys=(key.with_suffix(".pub"),)))


def reasons(models: ModelManager) -> str:
    models.poll()
    return "; ".join(entry.reason for entry in models.index() if entry.reason)


def edit(directory: ModelDirectory, **fields: object) -> None:
    config = directory.config()
    for name, value in fields.items():
        setattr(config, name, value)
    (directory.path / "config.pbtxt").write_text(to_text(config))


def replace_by_link(path: Path) -> None:
    path.unlink()
    path.symlink_to("/etc/passwd")


CHANGES: dict[str, tuple[Change, str]] = {
    "model": (
        lambda d: (d.path / "2" / "model.onnx").write_bytes(linear(seed=9)),
        "model.onnx of linear/2 was changed",
    ),
    "card": (lambda d: (d.path / "2" / "MODEL_CARD.md").write_text("# best"), "MODEL_CARD.md of linear/2 was changed"),
    "added": (lambda d: (d.path / "2" / "more").touch(), "linear/2 has more, which was not signed with it"),
    "removed": (lambda d: (d.path / "2" / "MODEL_CARD.md").unlink(), "linear/2 lacks MODEL_CARD.md"),
    "signature": (lambda d: (d.path / "2" / "model.sig").unlink(), "linear/2 is not signed: it has no model.sig"),
    "labels": (lambda d: (d.path / "labels.txt").write_text("a\nb\nc\n"), "labels.txt of model 'linear' differs from"),
    "config": (lambda d: edit(d, max_batch_size=7), "config.pbtxt of model 'linear' differs .* 2: max_batch_size"),
    "no config": (lambda d: (d.path / "config.pbtxt").unlink(), "config.pbtxt of model 'linear' differs .* backend, "),
    "signed config": (lambda d: (d.path / "2" / "config.pbtxt").write_text(""), "config.pbtxt of linear/2 was changed"),
    "other version": (
        lambda d: [(d.path / "2" / f.name).write_bytes(f.read_bytes()) for f in (d.path / "1").iterdir()],
        "linear/2 has the signature of 'linear/1'",
    ),
    "link": (lambda d: replace_by_link(d.path / "2" / "MODEL_CARD.md"), "MODEL_CARD.md is a symbolic link"),
    "filename": (lambda d: edit(d, default_model_filename="../1/model.onnx"), "config.pbtxt of model 'linear' differs"),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_version_changed_after_signing_is_not_loaded(directory: ModelDirectory, key: Path, change: str) -> None:
    with closing(verifying(directory, key)) as models:
        assert reasons(models) == ""
        assert models.is_ready("linear", "2")
    make, sentence = CHANGES[change]
    make(directory)
    with closing(verifying(directory, key)) as models:
        assert not models.is_ready("linear", "2")
        assert re.search(sentence, reasons(models)), reasons(models)


def test_a_version_that_is_changed_while_it_is_served_stays_as_it_was(directory: ModelDirectory, key: Path) -> None:
    with closing(verifying(directory, key)) as models:
        before = models._loader.ready["linear", "2"]
        (directory.path / "2" / "model.onnx").write_bytes(linear(seed=9))
        assert "model.onnx of linear/2 was changed after it was signed" in reasons(models)
        assert models._loader.ready["linear", "2"] is before


def test_a_strangers_signature_is_rejected(directory: ModelDirectory, tmp_path: Path, key: Path) -> None:
    publish(directory, 3, ReleaseSigner(write_key(tmp_path / "other.pem")))
    with closing(verifying(directory, key)) as models:
        assert "linear/3 is signed by the key" in reasons(models)
        assert not models.is_ready("linear", "3")
    both = ServingSettings(verify_keys=(key.with_suffix(".pub"), tmp_path / "other.pub"))
    with closing(ModelManager(directory.path.parent, both)) as models:
        assert models.is_ready("linear", "3")


def test_roll_backs_need_no_key_and_changed_settings_do(directory: ModelDirectory, key: Path) -> None:
    with closing(verifying(directory, key)) as models:
        directory.roll_back()
        reasons(models)
        assert models.is_ready("linear", "1")
        edit(directory, max_batch_size=7)
        assert "max_batch_size" in reasons(models)
        directory.sign(1, ReleaseSigner(key))
        assert "max_batch_size" not in reasons(models)
        assert models.config("linear").max_batch_size == 7


def downgrade_by_policy(directory: ModelDirectory) -> None:
    directory.roll_back(1)


def downgrade_by_removal(directory: ModelDirectory) -> None:
    shutil.rmtree(directory.path / "2")


@pytest.mark.parametrize("downgrade", [downgrade_by_policy, downgrade_by_removal])
def test_a_new_key_withdraws_the_versions_that_it_does_not_sign(
    downgrade: Change, directory: ModelDirectory, tmp_path: Path, key: Path
) -> None:
    new = write_key(tmp_path / "new.pem")
    directory.sign(2, ReleaseSigner(new))
    with closing(verifying(directory, new)) as models:
        assert models.is_ready("linear", "2")
        downgrade(directory)
        assert "linear/1 is signed by the key" in reasons(models)
        assert models.is_ready("linear", "2")  # which stays in service
    with closing(verifying(directory, new)) as restarted:
        assert not restarted.is_ready("linear")
    with closing(verifying(directory, key)) as old:
        assert old.is_ready("linear", "1")


def test_a_changed_model_is_not_signed_again(directory: ModelDirectory, key: Path) -> None:
    (directory.path / "2" / "model.onnx").write_bytes(linear(seed=9))
    with pytest.raises(UntrustedRelease, match=r"model.onnx of linear/2 was changed after it was signed"):
        directory.sign(2, ReleaseSigner(key))


def verified(directory: ModelDirectory, key: Path) -> VerifiedFiles:
    return VerifiedFiles(directory.path, 2, directory.config(), [read_release_key(key.with_suffix(".pub"))])


def test_the_verified_content_is_used_whatever_becomes_of_the_file(directory: ModelDirectory, key: Path) -> None:
    files, path = verified(directory, key), directory.path / "2" / "model.onnx"
    before = path.read_bytes()
    path.write_bytes(linear(seed=9))
    assert files.graph("model.onnx") == before
    with pytest.raises(InvalidInput, match=r"has no file other.onnx"):
        files.graph("other.onnx")
    with pytest.raises(InvalidInput, match="label_filename"):
        files.labels("../labels.txt")


def test_a_version_signed_without_its_configuration_is_rejected(directory: ModelDirectory, key: Path) -> None:
    version = directory.path / "2"
    (version / "config.pbtxt").unlink()
    (version / SIGNATURE_FILE).write_bytes(sign_release(read_version(version), "linear/2", read_private_key(key)))
    with pytest.raises(UntrustedRelease, match=r"version 2 of model 'linear' was signed without config.pbtxt"):
        verified(directory, key)


def test_warm_up_data_in_files_are_not_covered(directory: ModelDirectory, key: Path) -> None:
    config = directory.config()
    config.model_warmup[0].inputs["inputs"].input_data_file = "sample"
    (directory.path / "config.pbtxt").write_text(to_text(config))
    directory.sign(2, ReleaseSigner(key))
    with closing(verifying(directory, key)) as models:
        assert "model_warmup of 'linear' reads 'sample', which no signature covers" in reasons(models)


def test_a_graph_is_read_once(directory: ModelDirectory, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[str] = []
    original = builtins.open

    def recorded(path: Path, *arguments: Any, **named: Any) -> object:
        opened.append(Path(path).name)
        return original(path, *arguments, **named)

    monkeypatch.setattr(builtins, "open", recorded)
    with closing(ModelManager(directory.path.parent, ServingSettings())) as models:
        assert models.is_ready("linear")
    assert opened.count("model.onnx") == 1


@pytest.mark.usefixtures("forked_programs")
def test_a_server_with_a_key_serves_only_signed_versions(directory: ModelDirectory, key: Path, tmp_path: Path) -> None:
    publish(directory, 3, None)
    config = directory.config()
    config.version_policy.all.SetInParent()
    (directory.path / "config.pbtxt").write_text(to_text(config))
    options = ("--verify-key", str(key.with_suffix(".pub")))
    with served(directory.path.parent, tmp_path / "log", *options) as server:
        found = [get(server.http, f"/v2/models/linear/versions/{version}/ready")[0] for version in (1, 2, 3)]
        assert found == [200, 200, 400]
        assert "version 3 cannot be loaded: linear/3 is not signed" in server.log
