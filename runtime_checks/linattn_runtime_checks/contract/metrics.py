"""The metrics of tasks: one record each. The export scores float64 with them, the checks a file."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from linattn_runtime_checks.contract.verdict import K


@dataclass(frozen=True, slots=True, kw_only=True)
class Metric:
    """One metric.

    Attributes:
        name: in packs and reports.
        title: for people.
        higher_is_better: which way is worse.
        score: of outputs, and labels with the leading axes of the outputs.
        grain: the smallest change that says anything, by the number of labels.
        text: a score for people, with its unit.
    """

    name: str
    title: str
    higher_is_better: bool
    score: Callable[[NDArray[Any], NDArray[np.int64]], float]
    grain: Callable[[int], float]
    text: Callable[[float], str]

    def allowed(self, reference: float, eager: float, labels: int) -> float:
        """By how much an artifact may be worse than float64.

        As in the verdict: K times what rounding costs PyTorch itself, and one grain, since the
        smallest rounding may tip a label that stands between two.
        """
        return K * abs(eager - reference) + self.grain(labels)

    def fall(self, score: float, reference: float) -> float:
        """By how much ``score`` is worse than ``reference``; below zero where it is better."""
        return reference - score if self.higher_is_better else score - reference


def top1(outputs: NDArray[Any], labels: NDArray[np.int64]) -> float:
    """The share of rows whose largest output is the label."""
    return float((outputs.argmax(axis=-1) == labels).mean())


def bits_per_byte(outputs: NDArray[Any], labels: NDArray[np.int64]) -> float:
    """The mean of -log2 of what the softmax of the outputs gives the label, a byte."""
    logits = outputs.astype(np.float64)
    logits -= logits.max(axis=-1, keepdims=True)
    chosen = np.take_along_axis(logits, labels[..., None], axis=-1)[..., 0]
    return float((np.log(np.exp(logits).sum(axis=-1)) - chosen).mean() / np.log(2))


METRICS: dict[str, Metric] = {
    metric.name: metric
    for metric in (
        Metric(
            name="top1",
            title="accuracy",
            higher_is_better=True,
            score=top1,
            grain=lambda labels: 1.5 / labels,
            text=lambda score: f"{score:.2%}",
        ),
        Metric(
            name="bits_per_byte",
            title="bits per byte",
            higher_is_better=False,
            score=bits_per_byte,
            grain=lambda labels: 1e-3,
            text=lambda score: f"{score:.3f} bits/byte",
        ),
    )
}
