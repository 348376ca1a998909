"""The stable codes of everything that a check can find: one line each.

Codes are only ever added. ``docs/codes.md`` and the report's JSON Schema are made from this table.
"""

from dataclasses import dataclass
from enum import StrEnum

from linattn_runtime_checks.contract.errors import ExitCode


class Code(StrEnum):
    """What a finding or a case is about."""

    PASS = "pass"
    FILE_DAMAGED = "file_damaged"
    LOAD_FAILED = "load_failed"
    RUNTIME_CRASHED = "runtime_crashed"
    RUNTIME_HUNG = "runtime_hung"
    OUT_OF_MEMORY = "out_of_memory"
    PROVIDER_FALLBACK = "provider_fallback"
    INPUTS_DIFFER = "inputs_differ"
    OUTPUTS_DIFFER = "outputs_differ"
    DTYPE_MISMATCH = "dtype_mismatch"
    SHAPE_MISMATCH = "shape_mismatch"
    AXIS_BECAME_STATIC = "axis_became_static"
    AXIS_RENAMED = "axis_renamed"
    AXIS_NOT_FIXED = "axis_not_fixed"
    AXIS_FROZEN_INSIDE = "axis_frozen_inside"
    AXIS_UNVERIFIED_RANGE = "axis_unverified_range"
    LENGTH_NOT_REFUSED = "length_not_refused"
    REFUSAL_UNVERIFIED = "refusal_unverified"
    RUN_FAILED = "run_failed"
    OUTPUT_MISSING = "output_missing"
    PARITY_EXCEEDED = "parity_exceeded"
    NONFINITE_MISMATCH = "nonfinite_mismatch"
    ZERO_ROW_NOT_ZERO = "zero_row_not_zero"
    NONFINITE_OUTPUT = "nonfinite_output"
    PADDING_LEAKS = "padding_leaks"
    BATCH_DEPENDENT = "batch_dependent"
    NOT_DETERMINISTIC = "not_deterministic"
    NOT_EQUIVARIANT = "not_equivariant"
    FUTURE_LEAKS = "future_leaks"
    PIECES_DIFFER = "pieces_differ"
    METRIC_FELL = "metric_fell"
    LABELS_DIFFER = "labels_differ"
    QUADRATIC_COST = "quadratic_cost"
    COST_UNKNOWN = "cost_unknown"
    SIZE_GREW = "size_grew"
    LATENCY_GREW = "latency_grew"
    ARTIFACT_GONE = "artifact_gone"
    BASELINE_INCOMPARABLE = "baseline_incomparable"
    INCONCLUSIVE = "inconclusive"
    PRECISION_LOST = "precision_lost"
    OUTSIDE_DOMAIN = "outside_domain"
    NAN_PADDING = "nan_padding"
    RUNTIME_INEXACT = "runtime_inexact"
    INPUT_WRITTEN = "input_written"
    GRAPH_UNROLLED = "graph_unrolled"
    NOT_JUDGED = "not_judged"


@dataclass(frozen=True, slots=True, kw_only=True)
class CodeInfo:
    """What a code means: the exit code it leads to, the meaning, and what to do."""

    exit_code: ExitCode
    meaning: str
    fix: str


def fails_nothing(code: Code) -> bool:
    """Whether ``code`` is ``pass`` or a note beside it."""
    return CODES[code].exit_code is ExitCode.PASS


_P, _X, _U = ExitCode.PARITY, ExitCode.EXPORT, ExitCode.UNVERIFIED
_R = ExitCode.REGRESSION

CODES: dict[Code, CodeInfo] = {
    code: CodeInfo(exit_code=exit_code, meaning=meaning, fix=fix)
    for code, exit_code, meaning, fix in (
        (Code.PASS, ExitCode.PASS, "agrees with float64 as far as rounding allows", "-"),
        (Code.FILE_DAMAGED, _X, "a file is missing or its bytes are not those of the manifest",
         "restore the file or build the folder again; it is not loaded"),
        (Code.LOAD_FAILED, _X, "the runtime cannot load the file",
         "read the runtime's message; an opset or IR that is too new names the fix"),
        (Code.RUNTIME_CRASHED, _X, "the process of the runtime died while it ran the artifact",
         "the message names the signal and the step; try another version of the runtime"),
        (Code.RUNTIME_HUNG, _X, "one step took longer than --time-limit",
         "raise --time-limit if the machine is slow"),
        (Code.OUT_OF_MEMORY, _X, "the artifact ran out of memory",
         "raise --memory-limit, or declare shorter lengths"),
        (Code.PROVIDER_FALLBACK, ExitCode.ENVIRONMENT,
         "what ran is not the execution provider that was asked for",
         "check driver and libraries, or ask for the provider that is there"),
        (Code.INPUTS_DIFFER, _P, "the file's inputs are not those of the manifest",
         "build the folder again"),
        (Code.OUTPUTS_DIFFER, _P, "the file's outputs are not those of the manifest",
         "build the folder again"),
        (Code.DTYPE_MISMATCH, _P, "a dtype differs from what is promised", "build again"),
        (Code.SHAPE_MISMATCH, _P, "a shape differs from what is promised", "build again"),
        (Code.AXIS_BECAME_STATIC, _P, "an axis that is promised dynamic is a number in the file",
         "find what fixed it at capture: a Python int of a size, or a branch on it"),
        (Code.AXIS_RENAMED, _P, "an axis is dynamic under another name",
         "applications bind sizes by name: restore the name"),
        (Code.AXIS_NOT_FIXED, _P, "an axis that is promised fixed is another number or a symbol",
         "build the folder again"),
        (Code.AXIS_FROZEN_INSIDE, _P,
         "an axis is labelled dynamic, but the graph is right only at sizes like the captured one",
         "find the loop or branch that capture unrolled or decided, and write it with tensors"),
        (Code.AXIS_UNVERIFIED_RANGE, _P, "an axis declares sizes that were not verified",
         "declare the verified range, or build with a pack that reaches further"),
        (Code.LENGTH_NOT_REFUSED, _P, "a fixed artifact ran a length that it must refuse",
         "build the folder again"),
        (Code.REFUSAL_UNVERIFIED, _U, "no other length is stored to see a fixed artifact refuse",
         "build the folder again"),
        (Code.RUN_FAILED, _P, "the runtime failed on an input that the artifact must take",
         "read the runtime's message and the sizes beside it"),
        (Code.OUTPUT_MISSING, _P, "an output that is promised did not come", "build again"),
        (Code.PARITY_EXCEEDED, _P, "the numbers differ by more than rounding explains",
         "see the blame lines of the report: the first rung and the first node that depart"),
        (Code.NONFINITE_MISMATCH, _P, "NaN or infinity on one side only",
         "look for a division, an exponential or a half-precision sum"),
        (Code.ZERO_ROW_NOT_ZERO, _P, "a row that is zero by definition is not exactly zero",
         "the mask does not reach everything that enters the sums"),
        (Code.NONFINITE_OUTPUT, _P, "a finite input gave NaN or infinity",
         "look for a division, an exponential or a half-precision sum"),
        (Code.PADDING_LEAKS, _P, "what masked tokens hold changes the output of real tokens",
         "apply the mask to what enters the sums and the normaliser, not to V alone"),
        (Code.BATCH_DEPENDENT, _P, "a sequence alone gives another result than in a batch",
         "look for an operation over the batch axis, or a size that was frozen"),
        (Code.NOT_DETERMINISTIC, _P, "the same input twice gave different bytes",
         "look for random operators, or for state that is kept between runs"),
        (Code.NOT_EQUIVARIANT, _P, "reordering the tokens does not reorder the output",
         "look for an operation along tokens that the method does not have"),
        (Code.FUTURE_LEAKS, _P, "a later token changes the output of an earlier one",
         "look for a mask that is off by one, or a sum that takes in the whole sequence"),
        (Code.PIECES_DIFFER, _P, "a sequence run piece by piece, state by state, is not the whole",
         "look at which output goes back to which input, and whether the state starts as it says"),
        (Code.METRIC_FELL, _P, "the task's score on held-out data is worse than that of float64",
         "see what else was found; if nothing, compare the order of the outputs and of the labels"),
        (Code.LABELS_DIFFER, _P, "the classes are not named as they were when the pack was made",
         "take the names from the manifest of the same build, or build the folder again"),
        (Code.QUADRATIC_COST, _P, "a tensor grows as the square of the sequence length",
         "the message names the node; the method is linear by definition"),
        (Code.COST_UNKNOWN, ExitCode.PASS, "the growth of the tensors could not be established",
         "the message says why"),
        (Code.SIZE_GREW, _R, "a file is larger than in the baseline by more than the band",
         "see what the exporter added; if it is wanted, make this report the baseline"),
        (Code.LATENCY_GREW, _R,
         "an artifact is slower than in the baseline by more than the band, in two runs",
         "look at the versions in both reports; if it is wanted, make this report the baseline"),
        (Code.ARTIFACT_GONE, _R, "an artifact of the baseline is no longer in the folder",
         "build it again; if that is wanted, make this report the baseline"),
        (Code.BASELINE_INCOMPARABLE, _U, "latencies cannot be compared with the baseline's",
         "measure the baseline on this machine, with this version and the same runtimes"),
        (Code.INCONCLUSIVE, _U, "rounding alone moves the output too far to judge anything",
         "use inputs or weights of a smaller scale"),
        (Code.PRECISION_LOST, ExitCode.PASS,
         "on this hostile family PyTorch itself loses more than 5 % to rounding",
         "nothing is proven on such inputs: keep them away from the model, or use float32"),
        (Code.OUTSIDE_DOMAIN, ExitCode.PASS,
         "on this hostile family the module itself gives NaN or infinity, in float64 too",
         "no fault of the file; declare range or positive if the input never holds such values"),
        (Code.NAN_PADDING, ExitCode.PASS,
         "NaN in padded positions reaches real tokens, as it does in PyTorch: 0 times NaN is NaN",
         "keep NaN out of padded positions, or select with torch.where before the sums"),
        (Code.RUNTIME_INEXACT, ExitCode.PASS,
         "the file is a faithful translation; a kernel of the runtime departs from float64",
         "the message names the node; another release or runtime may be more exact"),
        (Code.INPUT_WRITTEN, ExitCode.PASS,
         "the module writes into an input; the file gives its outputs and leaves the input alone",
         "do not rely on the written input where the file is used"),
        (Code.GRAPH_UNROLLED, ExitCode.PASS,
         "the number of nodes grows with the length that was captured: a loop was unrolled",
         "write the loop with tensor operations, or build for short fixed lengths only"),
        (Code.NOT_JUDGED, _U, "no runtime here compared the artifact",
         "install the runtime that the report names"),
    )
}  # fmt: skip
