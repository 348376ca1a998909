"""``--live``: further inputs and lengths, with float64 references made on the spot.

That needs torch and the modules, which this package must not import: the export side registers
itself under the entry point group ``linattn.live``.
"""

import random
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import metadata
from pathlib import Path

from linattn_runtime_checks.contract.errors import EnvironmentProblem
from linattn_runtime_checks.contract.integrity import damaged_files
from linattn_runtime_checks.contract.manifest import Manifest

GROUP = "linattn.live"


@contextmanager
def live_packs(
    folder: Path, manifest: Manifest, seed: int | None, *, quiet: bool
) -> Iterator[dict[str, list[Path]]]:
    """Golden packs beyond those of the folder, by the path of the one they extend.

    Args:
        folder: of the manifest.
        manifest: its contents.
        seed: of inputs, lengths and batches; None draws one, which is printed.
        quiet: do not print it.

    Raises:
        EnvironmentProblem: torch or the exporting side is not installed.
        UsageError: a golden pack does not say how to make its module again.
    """
    entry = next(iter(metadata.entry_points(group=GROUP)), None)
    try:
        write = entry.load() if entry is not None else None
    except ImportError as error:
        raise EnvironmentProblem(
            f"`live` makes references with PyTorch, which cannot be used here ({error}); "
            "run: pip install 'linattn[export]'"
        ) from error
    if write is None:
        raise EnvironmentProblem(
            f"`live` finds nothing under the entry point {GROUP}; install linattn again"
        )
    chosen = random.SystemRandom().randrange(2**31) if seed is None else seed
    if not quiet:
        print(f"live: seed {chosen}; again with --live --seed {chosen}", file=sys.stderr)
    damaged = damaged_files(folder, manifest)
    with tempfile.TemporaryDirectory(prefix="linattn-live-") as temporary:
        whole = [file.path for file in manifest.references if file.path not in damaged]
        yield write(folder, manifest, whole, [chosen], Path(temporary))
