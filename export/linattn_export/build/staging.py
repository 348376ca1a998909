"""Writes a folder beside its final place and swaps it in at the end.

Whatever goes wrong before the swap, the folder that was there stays as it was. Where the place is
a symbolic link, the folder behind it is the one that is replaced, and the link stays.
"""

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from linattn_runtime_checks.contract.errors import ExportError, UsageError
from linattn_runtime_checks.contract.manifest import FILE_NAME


def check_output(output: Path) -> None:
    """Refuse an output path that a build must not write to.

    Raises:
        UsageError: it is a file, a folder that is neither empty nor ours, not writable, or a link
            that leads nowhere.
    """
    target = behind(output)
    if target.exists() and not target.is_dir():
        raise UsageError(f"output {output} is a file; give a folder with `output`")
    if target.is_dir() and any(target.iterdir()) and not (target / FILE_NAME).is_file():
        raise UsageError(
            f"output {output} is not empty and holds no {FILE_NAME}, so it is not one of ours; "
            "give another folder with `output`, or empty it"
        )
    if target.is_dir() and target.is_mount():
        raise UsageError(
            f"output {output} is a mount point, and a folder is replaced as a whole; give a folder "
            f"inside of it, such as `output={str(output / 'artifacts')!r}`"
        )
    parent = target.parent
    while not parent.exists():
        parent = parent.parent
    if not parent.is_dir():
        raise UsageError(f"output {output} cannot be written: {parent} is a file")
    if not os.access(parent, os.W_OK | os.X_OK):
        raise UsageError(f"output {output} cannot be written: no permission in {parent}")


def behind(output: Path) -> Path:
    """The place itself, where ``output`` is a symbolic link or lies behind one.

    Raises:
        UsageError: a link on the way leads in a circle, or to nothing.
    """
    try:
        target = output.resolve()
        circle = target.is_symlink()
    except (OSError, RuntimeError):  # which of them depends on the version of Python
        circle = True
    if circle:
        raise UsageError(
            f"output {output} cannot be written: a symbolic link on the way leads to itself; "
            "remove the link, or give another folder with `output`"
        )
    for link in (output, *output.absolute().parents):
        if link.is_symlink() and not link.exists():
            raise UsageError(
                f"output {output} cannot be written: {link} is a symbolic link to "
                f"{os.readlink(link)}, which does not exist; make that folder, or remove the link"
            )
    return target


@contextmanager
def staged(output: Path) -> Iterator[Path]:
    """A new folder to write into; it becomes ``output`` when the block ends without an error.

    Raises:
        UsageError: see :func:`check_output`.
        ExportError: the disk is full or a rename fails.
    """
    check_output(output)
    output = behind(output)  # a link stays, and renames stay on one device
    try:
        output.parent.mkdir(parents=True, exist_ok=True)
        staging = Path(tempfile.mkdtemp(prefix=f".{output.name}.", dir=output.parent))
    except OSError as error:
        raise UsageError(f"output {output} cannot be written: {error.strerror}") from error
    try:
        yield staging
        _swap(staging, output)
    except OSError as error:
        raise ExportError(
            f"writing {output} failed: {error.strerror or error}; what was there is unchanged"
        ) from error
    finally:
        shutil.rmtree(staging, ignore_errors=True)


def _swap(staging: Path, output: Path) -> None:
    staging.chmod(0o777 & ~_umask())
    if not output.exists():
        staging.rename(output)
        return
    old = Path(tempfile.mkdtemp(prefix=f".{output.name}.old.", dir=output.parent))
    kept = old / output.name
    try:
        output.rename(kept)
        staging.rename(output)
    except BaseException:  # an interruption too
        if not output.exists():
            kept.rename(output)
        raise
    finally:
        if output.exists():
            shutil.rmtree(old, ignore_errors=True)


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
