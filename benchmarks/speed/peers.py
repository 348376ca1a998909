"""The latency of our artifact divided by that of another package's layer, exported by torch.onnx.

    python -m benchmarks.speed.peers [--quick] [--output FOLDER] [--budget SECONDS]

Same method, weights and length; the packages are in the extra ``bench``. Outputs are compared
before anything is timed. A layer that cannot be exported for any length is exported for each, and
one that cannot be exported at all is reported with the reason.
"""

from pathlib import Path

import numpy as np
from torch import nn

from benchmarks.speed import page, script
from benchmarks.speed.layers import (
    Array,
    Sizes,
    call_of,
    export,
    hidden_states,
    open_session,
)
from benchmarks.speed.peer_layers import PEERS, Peer, export_peer
from benchmarks.speed.ratios import Goal, median_ms, ratio
from benchmarks.speed.timing import interleave
from linattn_runtime_checks.runtimes.onnx_runtime import OrtSession

LENGTHS = (128, 512, 1024, 4096, 8192)
_LONG = 1024
_SAME = 1e-4


def goal_of(length: int) -> Goal:
    """What ours should take at most, as a multiple of theirs."""
    return Goal(value=0.8 if length >= _LONG else 1.0)


def difference(ours: OrtSession, theirs: OrtSession, x: Array) -> float:
    """Of the outputs, relative to theirs, in the 2-norm."""
    a, b = (session.run({"hidden_states": x})["output"] for session in (ours, theirs))
    return float(np.linalg.norm(a.astype(np.float64) - b) / np.linalg.norm(b))


class Contestant:
    """A peer and our artifact with its weights."""

    def __init__(self, peer: Peer, sizes: Sizes, folder: Path) -> None:
        self.peer, self.sizes, self.folder = peer, sizes, folder
        self.module, subject = peer.pair(sizes)
        folder.mkdir()
        self.ours = open_session(export(subject, folder))
        self.notes: list[str] = []
        self.dynamic = self._export(self.module, None)

    def _export(self, module: nn.Module, length: int | None) -> OrtSession | None:
        path = self.folder / f"peer-{length or 'dynamic'}.onnx"
        try:
            export_peer(module, path, self.sizes, length)
        except Exception as error:
            lines = [line.strip() for line in str(error).splitlines() if line.strip()]
            kind = "any length" if length is None else f"N = {length}"
            reason = " ".join(lines[:2])[:300]
            self.notes.append(f"{self.peer.package} does not export for {kind}: {reason}")
            return None
        return open_session(path)

    def theirs(self, length: int) -> tuple[OrtSession | None, str]:
        """Their artifact for a length, and of which kind it is."""
        if self.dynamic is not None:
            return self.dynamic, "dynamic"
        return self._export(self.module, length), "fixed"


def measure(
    folder: Path, sizes: Sizes, lengths: tuple[int, ...], budget_s: float
) -> script.Measured:
    """The table, and what could not be measured."""
    rows: list[page.Row] = []
    notes = [f"{p.package} is not installed: see the extra bench" for p in PEERS if not p.version]
    for peer in PEERS:
        if not peer.version:
            continue
        contestant = Contestant(peer, sizes, folder / peer.package)
        for length in lengths:
            theirs, kind = contestant.theirs(length)
            if theirs is None:
                continue
            x = hidden_states(length, sizes)
            apart = difference(contestant.ours, theirs, x)
            if not apart < _SAME:
                notes.append(f"{peer.package}, N = {length}: outputs differ by {apart:.2g}")
                continue
            feed = {"hidden_states": x}
            sessions = {"ours": contestant.ours, "theirs": theirs}
            times = interleave({name: call_of(s, feed) for name, s in sessions.items()}, budget_s)
            rows.append(
                page.ratio_row(
                    {
                        "peer": f"{peer.package} {peer.version}",
                        "its export": kind,
                        "method": peer.method,
                        "N": length,
                    },
                    {
                        "outputs differ by": apart,
                        "ours ms": median_ms(times["ours"]),
                        "theirs ms": median_ms(times["theirs"]),
                    },
                    ratio(times["ours"], times["theirs"]),
                    goal_of(length),
                )
            )
        notes += contestant.notes
    return script.Measured(rows=rows, notes=notes)


def main() -> None:
    """Measure and write."""
    script.run(
        __doc__,
        measure,
        name="peers",
        title="Ours against other packages' layers",
        text="Our dynamic artifact against the package's own module as torch.onnx.export writes "
        "it, with the same weights.",
        lengths=LENGTHS,
        budget_s=8,
    )


if __name__ == "__main__":
    main()
