"""Modules that do not take every number, and sizes that they do not take."""

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from linattn_export import export_module
from linattn_export.golden.pool import candidates
from linattn_export.golden.writing import write_golden
from linattn_export.inputs.cases import CasePlan, plan_cases
from linattn_export.inputs.domain import ends, inside
from linattn_export.inputs.drawing import draw
from linattn_export.inputs.families import EDGE, FAMILIES, SAMPLES, applicable
from linattn_export.options.request import BuildRequest
from linattn_export.options.variants import Range, Variant
from linattn_export.own.spec import read_spec
from linattn_export.own.subject import make_subject
from linattn_export.subjects.perturb import moved_inputs, nearby_inputs
from linattn_export.subjects.subject import Subject
from linattn_models import Domain, InputSpec
from linattn_runtime_checks.contract import token_axes
from linattn_runtime_checks.contract.codes import Code
from linattn_runtime_checks.contract.errors import ExitCode, ExportError, UsageError
from linattn_runtime_checks.contract.golden_pack import open_reference
from linattn_runtime_checks.contract.manifest import TensorSpec, read

DOMAINS = {
    "power": Domain(positive=True),
    "probability": Domain(low=0.0, high=1.0),
    "cosine": Domain(low=-1.0, high=1.0),
    "pixel": Domain(low=0.0, high=255.0),
    "place": Domain(low=0.0, high=31.0),
    "inside": Domain(low=-0.999, high=0.999),
    "far": Domain(low=1000.1, high=1000.7),
    "ratio": Domain(low=0.0, high=1.0, positive=True),
}
DRAWN = [n for n, f in FAMILIES.items() if not f.directed and n not in (EDGE, SAMPLES)]
SIZES = {"batch": 3, "sequence": 12}


def holds(domain: Domain, tensor: Tensor) -> bool:
    wide = tensor.double()
    low, high = float(wide.min()), float(wide.max())
    return domain.low <= low and high <= domain.high and (low > 0 or not domain.positive)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
@pytest.mark.parametrize("name", DOMAINS)
def test_no_family_and_no_move_leaves_the_domain(name: str, dtype: torch.dtype) -> None:
    domain = DOMAINS[name]
    if name == "far" and dtype == torch.float16:
        domain = Domain(low=1000.0, high=1001.0)
    specs = (
        InputSpec(name="x", axes=("batch", "sequence", 4), domain=domain),
        InputSpec(name="attention_mask", axes=("batch", "sequence"), kind="mask"),
    )
    for family in DRAWN:
        inputs = draw(specs, SIZES, family=family, dtype=dtype, seed=2)
        assert holds(domain, inputs["x"]), family
        assert inputs["x"].dtype == dtype
        for run in range(3):
            assert holds(domain, moved_inputs(inputs, run, specs)["x"]), family
            assert holds(domain, nearby_inputs(inputs, run, specs, 4.0**6)["x"]), family


def test_numbers_of_a_range_are_drawn_evenly_and_positive_ones_as_magnitudes() -> None:
    sizes = {"batch": 8, "sequence": 200}
    spec = InputSpec(name="x", axes=("batch", "sequence"), domain=DOMAINS["pixel"])
    drawn = draw((spec,), sizes, family="normal", dtype=torch.float32, seed=0)["x"]
    shares, _ = np.histogram(drawn.numpy(), bins=5, range=(0, 255))
    assert shares.min() > 0.8 * shares.mean()
    spec = InputSpec(name="x", axes=("batch", "sequence"), scale=3.0, domain=DOMAINS["power"])
    drawn = draw((spec,), sizes, family="normal", dtype=torch.float32, seed=0)["x"]
    assert float(drawn.square().mean().sqrt()) == pytest.approx(3.0, rel=0.1)


def test_the_smallest_numbers_stand_for_zero() -> None:
    spec = InputSpec(name="x", axes=("batch", "sequence"), domain=DOMAINS["power"])
    tiny = torch.finfo(torch.float32).smallest_normal
    zeros = draw((spec,), SIZES, family="zero-rows", dtype=torch.float32, seed=0)["x"]
    assert set(zeros[:, ::2].flatten().tolist()) == {tiny}
    subnormal = draw((spec,), SIZES, family="denormals", dtype=torch.float32, seed=0)["x"]
    assert 0 < float(subnormal[:, ::2].min()) < float(subnormal[:, ::2].max()) < tiny


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_ends_are_numbers_of_the_dtype_between_the_declared_ones(dtype: torch.dtype) -> None:
    for low, high in ((0.1, 0.7), (-0.3, 1e-9), (1e-6, 0.999999), (-1e9, 1e39)):
        first, last = ends(Domain(low=low, high=high), dtype)
        assert low <= first <= last <= high
        assert torch.tensor([first, last], dtype=torch.float64).to(dtype).tolist() == [first, last]
    assert ends(Domain(positive=True), dtype) == (-torch.finfo(dtype).max, torch.finfo(dtype).max)


def test_only_inputs_with_a_domain_are_changed() -> None:
    values = torch.tensor([-3.0, 0.0, 5.0], dtype=torch.float64)
    spec = InputSpec(name="x", axes=("batch",))
    assert inside(values, spec, torch.float32) is values


@pytest.mark.parametrize("name", [name for name in DOMAINS if name != "far"])
def test_the_checks_put_nothing_else_there(name: str) -> None:
    """Garbage in padded positions, and other tokens where the future must not be seen."""
    domain = DOMAINS[name]
    ranged = math.isfinite(domain.high)
    spec = TensorSpec(
        name="x",
        dtype="float32",
        shape=["batch", "sequence"],
        axes=["batch", "sequence"],
        range=(domain.low, domain.high) if ranged else None,
        positive=domain.positive,
    )
    for number in (1.0, -1e4, 1e4, 0.0):
        found = token_axes.inside(np.asarray([number], dtype=np.float32), spec)
        assert found.dtype == np.float32
        assert holds(domain, torch.from_numpy(found))
    drawn = InputSpec(name="x", axes=("batch", "sequence"), domain=domain)
    x = draw((drawn,), SIZES, family="normal", dtype=torch.float32, seed=0)["x"].numpy()
    another = token_axes.another_from(x, spec, 4)
    assert (another[:, :4] == x[:, :4]).all()
    assert (another[:, 4:] != x[:, 4:]).all()
    assert holds(domain, torch.from_numpy(another))


def spec_of(x: dict[str, Any], **symbols: str) -> dict[str, Any]:
    return {
        "symbols": {"batch": "1:4", "sequence": "1:20"} | symbols,
        "inputs": {"x": {"shape": ["batch", "sequence", 8]} | x},
    }


@pytest.mark.parametrize(
    ("x", "words"),
    [
        ({"range": [1.0, 0.0]}, "range is reversed"),
        ({"range": [0.0, math.inf]}, "two finite ends.*positive = true"),
        ({"range": [math.nan, 1.0]}, "two finite ends"),
        ({"range": [-2, 0], "positive": True}, "holds no positive number"),
        ({"range": [0, 1], "scale": 2.0}, "leave out family and scale"),
        ({"range": [0, 1], "family": "normal"}, "leave out family and scale"),
        ({"range": [0.5, 3], "dtype": "int64"}, "range of int64 is whole numbers"),
        ({"range": [0, 3], "dtype": "int64", "positive": True}, "start range at 1"),
        ({"range": [0.1, 0.2, 0.3]}, "inputs.x.range"),
    ],
)
def test_a_domain_that_says_nothing_is_refused(x: dict[str, Any], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        read_spec(spec_of(x))


def test_a_mask_has_no_domain() -> None:
    mask = {"kind": "mask", "shape": ["batch", "sequence"], "positive": True}
    with pytest.raises(UsageError, match="takes no range, positive"):
        read_spec({"symbols": {"batch": "1:4", "sequence": "1:9"}, "inputs": {"mask": mask}})


def subject_of(module: nn.Module, inputs: Any) -> Subject:
    return make_subject(module.eval(), read_spec(inputs), BuildRequest(), "net", "net")


class Plain(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x * 2


@pytest.mark.parametrize(
    ("x", "number", "words"),
    [
        ({"range": [0, 1]}, 1.5, r"values go from 0.5 to 1.5, outside of range \[0, 1\]"),
        ({"range": [-1.0, 1.0]}, math.nan, "outside of range"),
        ({"positive": True}, 0.0, "positive = true says that all are above 0"),
    ],
)
def test_samples_are_held_to_the_domain(
    x: dict[str, Any], number: float, words: str, tmp_path: Path
) -> None:
    real = torch.full((2, 5, 8), 0.5)
    real[1, 2, 3] = number
    save_file({"x": real}, tmp_path / "real.safetensors")
    inputs = read_spec(spec_of(x | {"samples": "real.safetensors"}))
    inputs.folder = tmp_path
    with pytest.raises(UsageError, match=rf"inputs.x.samples: .*{words}"):
        make_subject(Plain(), inputs, BuildRequest(), "net", "net")


def test_a_range_without_a_number_of_the_dtype_is_refused() -> None:
    with pytest.raises(UsageError, match="holds no number of float32; widen it"):
        subject_of(Plain(), spec_of({"range": [0.1, 0.1]}))


def test_a_float_that_is_a_place_in_a_table_is_told_to_say_so() -> None:
    class Looked(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table = nn.Embedding(5, 8)

        def forward(self, x: Tensor) -> Tensor:
            found: Tensor = self.table(x.long())
            return found.sum(-2)

    with pytest.raises(UsageError, match=r"numbers of inputs.x are places .* declare range"):
        subject_of(Looked(), spec_of({}))
    subject = subject_of(Looked(), spec_of({"range": [0.0, 4.5]}))
    for inputs in candidates(subject, SIZES):
        subject.module(inputs["x"])


class Spectrum(nn.Module):
    """What is not defined at 0 and below."""

    def __init__(self) -> None:
        super().__init__()
        self.mix = nn.Linear(8, 8)

    def forward(self, x: Tensor) -> Tensor:
        mixed: Tensor = self.mix(x.log())
        return mixed


def test_a_log_of_positive_numbers_passes(tmp_path: Path) -> None:
    torch.manual_seed(0)
    report = export_module(
        Spectrum(),
        spec_of({"positive": True}),
        tmp_path / "out",
        formats=["onnx"],
        latency=False,
        quiet=True,
    )
    assert report.exit_code is ExitCode.PASS, report.all_findings()
    (artifact,) = read(tmp_path / "out").artifacts
    assert artifact.inputs[0].positive
    assert artifact.inputs[0].range is None
    with open_reference(tmp_path / "out" / artifact.reference) as pack:
        for case in pack.index.cases:
            assert pack.inputs(case)["x"].min() > 0


class Inverse(nn.Module):
    """Equal tokens, and those that are zero, make its matrix singular."""

    def forward(self, x: Tensor) -> Tensor:
        inverse: Tensor = torch.linalg.inv(x[:, :8])
        return inverse


@pytest.mark.slow
def test_a_family_on_which_the_module_raises_is_left_out_and_named(tmp_path: Path) -> None:
    report = export_module(
        Inverse(),
        spec_of({}, sequence="16:30"),
        tmp_path / "out",
        formats=["pt2"],
        latency=False,
        quiet=True,
    )
    (artifact,) = read(tmp_path / "out").artifacts
    (note,) = [note for note in artifact.notes if note.code is Code.OUTSIDE_DOMAIN]
    assert "the module itself raises on constant-rows, zero-rows: " in note.message
    assert "test_outside_domains.py" in note.message, "the line of the module"
    assert "linalg.inv" in note.message
    assert Code.OUTSIDE_DOMAIN in {finding.code for finding in report.all_findings()}
    with open_reference(tmp_path / "out" / artifact.reference) as pack:
        families = {case.family for case in pack.index.cases}
    assert not {"constant-rows", "zero-rows"} & families
    assert {"normal", "scale=30"} <= families


class Refuses(nn.Module):
    """Raises where ``when(x)``."""

    def __init__(self, when: Any) -> None:
        super().__init__()
        self.when = when

    def forward(self, x: Tensor) -> Tensor:
        if self.when(x):
            raise ValueError("no")
        return x * 2


def plan(family: str) -> CasePlan:
    hostile = FAMILIES[family].hostile
    return CasePlan(family=family, hostile=hostile, stored=2, sequence=7, batches=(2,))


@pytest.mark.parametrize(
    ("when", "family", "words"),
    [
        (lambda x: x.size(1) == 7, "normal", "fails on batch 2, sequence 7: ValueError: no at "),
        (lambda x: x.size(1) == 7, "zero-rows", "on batch 2, sequence 7: .*declare only sizes"),
        (
            lambda x: x.size(1) == 7 and float(x.abs().max()) > 50,
            "right-padding",
            "inputs of family right-padding .*it takes usual inputs of these sizes",
        ),
    ],
)
def test_what_failed_is_named(when: Any, family: str, words: str, tmp_path: Path) -> None:
    """A hostile family at a size that the module does not take at all is a matter of the size."""
    inputs = spec_of({"scale": 4.0})
    inputs["inputs"]["attention_mask"] = {"kind": "mask", "shape": ["batch", "sequence"]}

    class Masked(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = Refuses(when)

        def forward(self, x: Tensor, attention_mask: Tensor) -> Tensor:
            found: Tensor = self.inner(x)
            return found * attention_mask[..., None]

    subject = subject_of(Masked(), inputs)
    with pytest.raises(ExportError, match=words):
        write_golden(subject, tmp_path / "pack", [plan(family)])


def test_hostile_values_are_told_from_sizes(tmp_path: Path) -> None:
    subject = subject_of(Refuses(lambda x: bool((x == 0).any())), spec_of({}))
    index = write_golden(subject, tmp_path / "pack", [plan("normal"), plan("zero-rows")])
    assert [case.family for case in index.cases] == ["normal"]
    assert "ValueError: no" in index.left_out["zero-rows"]


class Positions(nn.Module):
    """Takes one length, or at most one, and says nothing of others."""

    def __init__(self, length: int) -> None:
        super().__init__()
        self.places = nn.Parameter(torch.randn(length, 8))

    def forward(self, x: Tensor) -> Tensor:
        return x + self.places


@pytest.mark.parametrize("length", [1, 2, 20])
def test_another_length_need_not_run(length: int, tmp_path: Path) -> None:
    """It is stored to be refused by the file, as the module itself refuses it."""
    subject = subject_of(Positions(length), spec_of({}, sequence=str(length)))
    plans = [p for p in plan_cases(subject.variants, []) if p.sequence != length]
    assert len(plans) == 1
    write_golden(subject, tmp_path / "pack", plans)
    with open_reference(tmp_path / "pack") as pack:
        (case,) = pack.index.cases
        assert pack.inputs(case)["x"].shape[1] == case.sequence != length
        assert pack.outputs(case) == {}


def test_one_length_of_learned_positions_passes(tmp_path: Path) -> None:
    report = export_module(
        Positions(20),
        spec_of({}, sequence="20"),
        tmp_path / "out",
        formats=["onnx"],
        latency=False,
        quiet=True,
    )
    assert report.exit_code is ExitCode.PASS, report.all_findings()
    assert report.artifacts[0].declared_sequence == (20, 20)


def test_a_length_that_is_declared_must_run() -> None:
    one = Range(low=1, high=1)
    variants = [Variant(name="n4", sequence=Range(low=4, high=4), batch=one)]
    assert {p.family for p in plan_cases(variants, [])} == {"normal", "other-length"}


@pytest.mark.parametrize(
    ("symbols", "shape", "words"),
    [
        ({"batch": "1:8"}, ["batch", "points1", 3], 'call it "sequence" and add sequence = "1:8"'),
        (
            {"batch": "1:8", "sequence": "1:8"},
            ["batch", "points1", "sequence"],
            "write the number of points1",
        ),
        ({}, ["batch", 3], 'add batch = "1:8"'),
        ({"batch": "1:8", "points1": "1:8"}, ["batch", "points1"], "call it sequence here and in"),
        ({"sequence": "1:8", "rows": "1:8"}, ["rows", "sequence"], "call it batch here and in"),
        (
            {"batch": "1:8", "sequence": "1:8", "points1": "1:8"},
            ["batch", "sequence", "points1"],
            "write a number for points1 in the shapes",
        ),
        ({"batch": "1:8", "seqence": "1:8"}, ["batch", "seqence"], "did you mean 'sequence'"),
    ],
)
def test_an_unknown_symbol_leads_somewhere(
    symbols: dict[str, str], shape: list[str | int], words: str
) -> None:
    with pytest.raises(UsageError) as caught:
        read_spec({"symbols": symbols, "inputs": {"x": {"shape": shape}}})
    assert words in str(caught.value)


def test_all_families_apply_to_inputs_with_a_domain() -> None:
    spec = InputSpec(name="x", axes=("batch", "sequence"), domain=Domain(positive=True))
    names = {family.name for family in applicable((spec,), mask=False, directions={})}
    assert {"scale=10000", "zero-rows", "denormals", "huge-token", "constant-rows"} <= names
