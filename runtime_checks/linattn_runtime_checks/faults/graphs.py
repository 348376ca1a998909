"""The table of faults of a graph, which are planted in copies of ONNX artifacts."""

from collections.abc import Callable
from dataclasses import dataclass

from linattn_runtime_checks.contract.manifest import Artifact
from linattn_runtime_checks.faults import axes, masks, mathematics
from linattn_runtime_checks.faults.editing import Graph

Plant = Callable[[Graph, Artifact], bool]


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphFault:
    """One fault.

    ``families`` are the inputs on which it shows; empty means N(0, 1) and the masks. ``captured``
    says that the captured length hides it. ``from_length`` is the shortest sequence on
    which it changes the mathematics at all: over a single token every softmax is 1 and every query
    is ignored.
    """

    name: str
    title: str
    plant: Plant
    from_length: int = 1
    families: tuple[str, ...] = ()
    captured: bool = False


def none(graph: Graph, artifact: Artifact) -> bool:
    """The control: read and written again, unchanged."""
    return True


_MASKS = ("right-padding", "left-padding", "inside-padding", "one-token")
CONTROL = GraphFault(name="none", title="unchanged: must pass", plant=none)
GRAPH_FAULTS: dict[str, GraphFault] = {
    fault.name: fault
    for fault in (
        GraphFault(
            name="softmax-axis",
            title="softmax over the wrong axis",
            plant=mathematics.softmax_axis,
            from_length=2,
        ),
        GraphFault(
            name="scale-missing",
            title="the factor 1/sqrt(D) missing",
            plant=mathematics.scale_missing,
            from_length=2,
        ),
        GraphFault(
            name="query-ignored",
            title="all queries zero",
            plant=mathematics.query_ignored,
            from_length=2,
        ),
        GraphFault(
            name="key-and-value-swapped",
            title="keys and values swapped",
            plant=mathematics.key_and_value_swapped,
        ),
        GraphFault(
            name="normaliser-dropped",
            title="the normaliser dropped",
            plant=mathematics.normaliser_dropped,
        ),
        GraphFault(
            name="eps-dropped",
            title="the normaliser's epsilon dropped",
            plant=mathematics.eps_dropped,
            families=("negative-features",),
        ),
        GraphFault(
            name="head-ignored", title="features of a head ignored", plant=mathematics.head_ignored
        ),
        GraphFault(
            name="weight-transposed",
            title="a square weight transposed",
            plant=mathematics.weight_transposed,
        ),
        GraphFault(
            name="weight-x-1.001",
            title="one weight matrix times 1.001",
            plant=mathematics.matrix_moved,
            from_length=2,
        ),
        GraphFault(
            name="projections-swapped",
            title="Linformer's E and F swapped",
            plant=mathematics.projections_swapped,
        ),
        GraphFault(
            name="mask-ignored",
            title="the mask ignored",
            plant=masks.mask_ignored,
            from_length=2,
            families=_MASKS,
        ),
        GraphFault(
            name="mask-inverted",
            title="the mask inverted",
            plant=masks.mask_inverted,
            from_length=2,
            families=_MASKS,
        ),
        GraphFault(
            name="mask-off-by-one",
            title="the mask shifted by one token",
            plant=masks.mask_off_by_one,
            from_length=2,
            families=_MASKS,
        ),
        GraphFault(
            name="mask-on-value-only",
            title="the mask applied to V only",
            plant=masks.mask_on_value_only,
            from_length=2,
            families=_MASKS,
        ),
        GraphFault(
            name="mask-dropped-alone",
            title="the mask ignored where the batch holds one sequence",
            plant=masks.mask_dropped_alone,
            from_length=2,
            families=_MASKS,
        ),
        GraphFault(
            name="holes-filled",
            title="padding between real tokens counted as real",
            plant=masks.holes_filled,
            from_length=3,
            families=("inside-padding",),
        ),
        GraphFault(
            name="bfloat16-products",
            title="float32 computed as bfloat16",
            plant=mathematics.bfloat16_products,
        ),
        GraphFault(
            name="exponential-approximated",
            title="exp replaced by a power that is near it",
            plant=mathematics.exponential_approximated,
            from_length=2,
        ),
        GraphFault(
            name="count-frozen",
            title="a count of tokens frozen at capture",
            plant=axes.count_frozen,
            captured=True,
        ),
        GraphFault(
            name="loop-unrolled",
            title="a loop over tokens unrolled at the captured length",
            plant=axes.loop_unrolled,
            from_length=25,
        ),
        GraphFault(
            name="batch-frozen-inside",
            title="labelled dynamic, the captured batch inside",
            plant=axes.batch_frozen_inside,
        ),
        GraphFault(
            name="batch-static",
            title="the batch axis became static",
            plant=axes.relabelled("batch", lambda artifact: artifact.axis("batch").captured),
        ),
        GraphFault(
            name="length-static",
            title="the sequence axis became static",
            plant=axes.relabelled("sequence", lambda artifact: artifact.axis("sequence").captured),
        ),
        GraphFault(
            name="axis-renamed",
            title="the sequence axis renamed",
            plant=axes.relabelled("sequence", lambda artifact: "s77"),
        ),
        GraphFault(
            name="length-not-refused",
            title="a fixed artifact that takes any length",
            plant=axes.length_not_refused,
        ),
        GraphFault(name="output-renamed", title="the output renamed", plant=axes.output_renamed),
    )
}
