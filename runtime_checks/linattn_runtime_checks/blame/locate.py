"""Inside one failing ONNX artifact: the first node that departs, and the guilty optimiser."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from linattn_runtime_checks.blame.nodes import first_departing_node
from linattn_runtime_checks.blame.optimizers import blame_optimizers, output_fails
from linattn_runtime_checks.contract.codes import Code
from linattn_runtime_checks.contract.errors import ExportError
from linattn_runtime_checks.contract.golden_pack import Case, Reference, holder
from linattn_runtime_checks.contract.manifest import Artifact
from linattn_runtime_checks.contract.verdict import Error, compare
from linattn_runtime_checks.results.report import CaseResult, Located, RuntimeResult
from linattn_runtime_checks.runtimes.base import RunFailed, Tensors

WRONG = {
    Code.PARITY_EXCEEDED, Code.NONFINITE_MISMATCH, Code.ZERO_ROW_NOT_ZERO, Code.SHAPE_MISMATCH,
}  # fmt: skip


def smallest_failing(cases: Sequence[CaseResult]) -> CaseResult | None:
    """The case with the fewest tokens that is wrong, None if none is."""
    wrong = [case for case in cases if case.code in WRONG]
    return min(wrong, key=lambda case: (case.batch * case.sequence, case.case), default=None)


def wrong_outputs(
    outputs: Tensors, expected: Tensors, artifact: Artifact, rounding: Mapping[str, Error]
) -> list[str]:
    """The names of the outputs that are wrong, each by its own dtype and yardstick.

    Args:
        outputs: what a session gave.
        expected: in float64; what the session did not give is not compared.
        artifact: its manifest entry.
        rounding: what rounding costs on each output.
    """
    dtypes = {spec.name: spec.dtype for spec in artifact.outputs}
    return [
        name
        for name, tensor in expected.items()
        if name in outputs
        and compare(outputs[name], tensor, dtypes.get(name, artifact.dtype), rounding[name]).code
        in WRONG
    ]


def locate(
    result: RuntimeResult, artifact: Artifact, packs: Sequence[Reference], path: Path
) -> None:
    """Set ``departure`` and ``optimizers`` of a result with wrong numbers.

    Nothing is set without the onnx package, or where the pack holds no fingerprints.

    Args:
        result: of ONNX Runtime on ``artifact``.
        artifact: its manifest entry.
        packs: its golden packs; the first is the one that was built with it.
        path: of the file.
    """
    failing = smallest_failing(result.cases)
    if failing is None:
        return
    try:
        import onnx
    except ImportError:
        return
    known = packs[0].index.fingerprints.get(artifact.variant)
    found_in = holder(packs, failing.case)
    try:
        if known is not None:
            inputs = packs[0].inputs(packs[0].case(known.case))
            found = first_departing_node(onnx.load(path), inputs, known.nodes)
            if found is not None:
                result.departure = Located(name=found.node, message=found.message)
        off = [c for c in result.cases if c.case == failing.case and c.mode == "optimizer-off"]
        right = bool(off) and all(of_output.code not in WRONG for of_output in off)
        if right and found_in is not None:
            _optimizer(result, artifact, *found_in, path)
    except (RunFailed, ExportError) as error:
        result.departure = Located(name="", message=f"the nodes cannot be compared: {error}")


def _optimizer(
    result: RuntimeResult, artifact: Artifact, reference: Reference, case: Case, path: Path
) -> None:
    expected = reference.outputs(case)

    def wrong(outputs: Tensors) -> bool:
        compared = {name: reference.compared(case, name, outputs[name]) for name in expected}
        rounding = {name: case.yardstick(name) for name in expected}
        return bool(wrong_outputs(compared, expected, artifact, rounding))

    found = blame_optimizers(output_fails(path, reference.inputs(case), wrong))
    if found is not None:
        result.optimizers = Located(name=", ".join(found.optimizers), message=found.message)
