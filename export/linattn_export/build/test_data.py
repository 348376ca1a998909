"""``test_data_set_k`` beside an ONNX model: the form of ONNX's own backend tests."""

from pathlib import Path

import numpy as np

from linattn_runtime_checks.checks.inputs import cases_for
from linattn_runtime_checks.contract.golden_pack import open_reference
from linattn_runtime_checks.contract.manifest import Artifact

# Of a dynamic artifact two lengths, so that a reader sees the axis move.
_SETS = 2
_TOKENS_AT_LEAST = 16


def write_test_data(folder: Path, place: str, artifact: Artifact) -> list[str]:
    """Write the sets of ``artifact``; returns their paths relative to ``folder``.

    Inputs are those of golden cases, outputs the float64 reference rounded to the artifact's
    dtype.
    """
    from onnx import numpy_helper

    written = []
    with open_reference(folder / artifact.reference) as reference:
        cases = [
            case
            for case in cases_for(artifact, reference)
            if case.family == "normal" and case.batch <= max(3, artifact.axis("batch").declared[0])
        ]
        roomy = [case for case in cases if case.sequence >= _TOKENS_AT_LEAST] or cases
        chosen = {case.sequence: case for case in sorted(roomy, key=lambda case: -case.batch)}
        for k, length in enumerate(sorted(chosen)[:_SETS]):
            name = f"{place}/test_data_set_{k}"
            (folder / name).mkdir()
            case = chosen[length]
            for kind, specs, tensors in (
                ("input", artifact.inputs, reference.inputs(case)),
                ("output", artifact.outputs, reference.outputs(case)),
            ):
                for index, spec in enumerate(specs):
                    array = tensors[spec.name].astype(np.dtype(spec.dtype))
                    path = f"{name}/{kind}_{index}.pb"
                    proto = numpy_helper.from_array(array, spec.name)
                    (folder / path).write_bytes(proto.SerializeToString(deterministic=True))
                    written.append(path)
    return written
