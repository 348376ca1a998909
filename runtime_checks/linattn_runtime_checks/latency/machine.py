"""How fast the machine is at the moment: the same matrix product, timed between the turns.

Two reports from one machine differ by its frequency, its heat and its neighbours. What this product
takes in each of them says by how much, and a baseline is compared after that is divided out.
"""

import time

import numpy as np

_WIDTH = 384
"""0.1 GFLOP on matrices of 0.6 MB: milliseconds, on all cores, within most second-level caches."""


class Machine:
    """Times the product; one sample each time it is called."""

    def __init__(self) -> None:
        self._matrix = np.random.default_rng(0).standard_normal((_WIDTH, _WIDTH), dtype=np.float32)
        self._out = np.empty_like(self._matrix)
        self._samples: dict[int, list[float]] = {}

    def sample(self, sequence: int) -> None:
        """One sample, among the turns at ``sequence`` tokens."""
        found = []
        for _ in range(2):  # the first only wakes the threads
            start = time.perf_counter_ns()
            np.matmul(self._matrix, self._matrix, out=self._out)
            found.append((time.perf_counter_ns() - start) * 1e-6)
        self._samples.setdefault(sequence, []).append(found[-1])

    def medians(self) -> dict[int, float]:
        """Length in tokens to the median, in milliseconds."""
        return {sequence: float(np.median(found)) for sequence, found in self._samples.items()}
