"""Are the files still those that were written?"""

import hashlib
from pathlib import Path

from linattn_runtime_checks.contract.manifest import Manifest, StoredFile

_CHUNK = 1 << 20


def sha256(path: Path) -> str:
    """The SHA-256 of a file, in hex."""
    digest = hashlib.sha256()
    with path.open("rb") as stream:
        while chunk := stream.read(_CHUNK):
            digest.update(chunk)
    return digest.hexdigest()


def stored(folder: Path, relative: str) -> StoredFile:
    """The manifest entry of a file that exists."""
    path = folder / relative
    return StoredFile(path=relative, sha256=sha256(path), bytes=path.stat().st_size)


def damage(folder: Path, file: StoredFile) -> str | None:
    """What is wrong with ``file``, None if it is as it was written."""
    try:
        return _damage(folder, file)
    except (OSError, RuntimeError) as error:  # no permission, or links that form a circle
        return f"cannot be read: {error}"


def _damage(folder: Path, file: StoredFile) -> str | None:
    path = folder / file.path
    if not path.resolve().is_relative_to(folder.resolve()):
        return "is a link that leads out of the folder"
    if not path.is_file():
        return "is missing"
    size = path.stat().st_size
    if size != file.bytes:
        word = "truncated" if size < file.bytes else "longer than it was"
        return f"is {word}: {size} bytes, {file.bytes} were written"
    if sha256(path) != file.sha256:
        return "was altered: its SHA-256 is not the one in the manifest"
    return None


def damaged_files(folder: Path, manifest: Manifest) -> dict[str, str]:
    """Path and damage of every file that is not as it was written."""
    found = ((file.path, damage(folder, file)) for file in manifest.files())
    return {path: what for path, what in found if what is not None}
