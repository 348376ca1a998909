"""Modules as other people bring them: a file that is right, or a refusal that says what to do."""

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor, nn

import outside_nets as nets
from linattn_export import export_module
from linattn_export.capture.program import capture
from linattn_export.golden.writing import as_tuple
from linattn_export.inputs.drawing import draw
from linattn_export.live_module.borrow import borrowed
from linattn_export.live_module.kept import Kept
from linattn_export.live_module.watches import writes_of
from linattn_export.options.request import BuildRequest
from linattn_export.own.spec import read_spec
from linattn_export.own.subject import make_subject
from linattn_export.own.subjects import subjects_from, subjects_of_module
from linattn_runtime_checks.contract.codes import Code
from linattn_runtime_checks.contract.errors import ExitCode, ExportError, LinattnError, UsageError
from linattn_runtime_checks.contract.golden_pack import open_reference
from linattn_runtime_checks.contract.manifest import read
from linattn_runtime_checks.results.report import Report

X: dict[str, Any] = {"shape": ["batch", "sequence", nets.WIDTH]}
MASK: dict[str, Any] = {"kind": "mask", "shape": ["batch", "sequence"]}


def spec_of(longest: int = 40, **inputs: Any) -> dict[str, Any]:
    """Of one input ``x`` unless others are given."""
    return {"symbols": {"batch": "1:4", "sequence": f"1:{longest}"}, "inputs": inputs or {"x": X}}


SPEC = spec_of(9)


def exported(module: Any, folder: Path, spec: Any = SPEC, **options: Any) -> Report:
    usual: dict[str, Any] = {"formats": ["onnx"], "latency": False, "quiet": True}
    return export_module(module, spec, folder, **(usual | options))


def passes(report: Report) -> bool:
    assert report.exit_code is ExitCode.PASS, report.all_findings()
    return True


def loaded_script(folder: Path) -> Any:
    load: Any = torch.jit.load
    return load(next(folder.rglob("model.pt")))


def refusal(module: Any, tmp_path: Path, spec: Any = SPEC, **options: Any) -> LinattnError:
    with pytest.raises(LinattnError) as caught:
        exported(module, tmp_path / "out", spec, **options)
    assert not (tmp_path / "out").exists()
    text = str(caught.value)
    assert "site-packages" not in text, text
    assert "linattn_export" not in text, text
    return caught.value


def subject_of(module: nn.Module, spec: Any = SPEC) -> Any:
    return make_subject(module.eval(), read_spec(spec), BuildRequest(), "net", "net")


WRITERS: list[tuple[str, dict[str, Any], str, str]] = [
    ("Relu", {}, "x", "x.relu_()"),
    ("OnlyEager", {}, "x", "x.relu_()"),
    ("Slice", {}, "x", "x[:, 0] = 0"),
    ("Transposed", {}, "x", "x.mT.add_(1)"),
    ("Out", {}, "x", "torch.mul(x, 3, out=x)"),
    ("Indexed", {}, "x", "x.index_put_("),
    ("Detached", {}, "x", "x.detach().mul_(0.5)"),
    ("Foreach", {}, "x", "torch._foreach_mul_([x], 0.5)"),
    ("OnlyInEval", {}, "x", "x.clamp_(min=0)"),
    ("ThroughNumpy", {}, "x", ""),
    ("Mask", {"x": X, "attention_mask": MASK}, "attention_mask", "logical_not_()"),
    (
        "Tokens",
        {"tokens": {"dtype": "int64", "range": [0, 8], "shape": ["batch", "sequence"]}},
        "tokens",
        "tokens.clamp_(max=4)",
    ),
    ("Batch", {"batch": {"x": X, "y": X}}, "x", 'batch["x"].sub_(1)'),
]


@pytest.mark.parametrize(("name", "inputs", "written", "line"), WRITERS)
def test_a_module_that_writes_into_an_input(
    name: str, inputs: dict[str, Any], written: str, line: str
) -> None:
    module = getattr(nets, name)()
    subject = subject_of(module, spec_of(**inputs))
    (note,) = subject.notes
    assert note.code is Code.INPUT_WRITTEN
    assert f"its input {written}" in note.message
    assert ("outside_nets.py:" in note.message) == bool(line)
    assert line in note.message
    sizes = {"batch": 2, "sequence": 5}
    drawn = draw(subject.inputs, sizes, family="normal", dtype=torch.float32, seed=1)
    given = {key: x.clone() for key, x in drawn.items()}
    call = subject.eager()
    (found,) = as_tuple(call(given))
    assert all(torch.equal(given[key], x) for key, x in drawn.items())
    assert torch.equal(found, as_tuple(call(given))[0])
    keys = [key for key in given if key != "y"]
    plain = module({**given}) if name == "Batch" else module(*(given[key] for key in keys))
    assert torch.equal(found, plain)


def test_the_files_of_such_a_module_are_right(tmp_path: Path) -> None:
    spec = spec_of(9, batch={"x": X, "y": X})
    assert passes(report := exported(nets.Batch(), tmp_path / "onnx", spec))
    assert [f.code for f in report.all_findings()] == [Code.INPUT_WRITTEN]
    assert len(read(tmp_path / "onnx").artifacts[0].outputs) == 1
    exported(nets.Batch(), tmp_path / "out", spec, formats=["torchscript", "pt2"], check=False)
    program = torch.export.load(next((tmp_path / "out").rglob("model.pt2"))).module()
    script = loaded_script(tmp_path / "out")
    for run in (program, script):
        x, y = torch.randn(2, 5, nets.WIDTH), torch.randn(2, 5, nets.WIDTH)
        before = x.clone()
        assert torch.equal(as_tuple(run(x, y))[0], (before - 1) * y)
        assert torch.equal(x, before)


def test_what_is_stored_is_what_eager_was_given(tmp_path: Path) -> None:
    exported(nets.Relu(), tmp_path / "out", check=False)
    (path,) = {a.reference for a in read(tmp_path / "out").artifacts}
    with open_reference(tmp_path / "out" / path) as reference:
        for case in reference.index.cases:
            x = torch.from_numpy(reference.inputs(case)["x"].copy())
            truth = torch.from_numpy(reference.outputs(case)["output"].copy())
            assert torch.equal(x.double().relu() * 2, truth)


def test_a_file_that_leaves_the_write_out_is_wrong(tmp_path: Path) -> None:
    report = exported(nets.OnlyEager(), tmp_path / "out")
    assert report.exit_code is ExitCode.PARITY
    assert {Code.INPUT_WRITTEN, Code.PARITY_EXCEEDED} <= {f.code for f in report.all_findings()}


@pytest.mark.parametrize(
    ("name", "kind", "words"),
    [
        ("OnlyLong", "torchscript", ["`x.relu_()`", "for some inputs (x [", "x.clone()"]),
        ("OnlyCaptured", "onnx", ["while it is captured", "input x", "is_exporting()"]),
    ],
)
def test_a_write_that_is_seen_late(name: str, kind: str, words: list[str], tmp_path: Path) -> None:
    module = getattr(nets, name)()
    error = refusal(module, tmp_path, spec_of(40), formats=[kind], check=False)
    assert all(word in str(error) for word in words), error


def test_only_what_is_watched_counts_as_written() -> None:
    x, other = torch.ones(3), torch.ones(3)

    def call(given: dict[str, Tensor]) -> None:
        given["x"].view(3, 1).add_(1)
        other.add_(1)
        (given["y"] * 2).add_(1)

    found = writes_of(call, {"x": x, "y": x}, {"other": other})
    assert set(found) == {"x", "other"}
    assert torch.equal(x, torch.ones(3))


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("Cache", ["state in cache ", "`self.cache = kept`"]),
        ("ListCache", ["state in past ", "`self.past.append(x.mean())`"]),
        ("ObjectState", ["state in store.runs ", "`self.store.runs += 1`"]),
        ("TensorState", ["state in total ", "`self.total.add_(x.sum())`"]),
        ("BufferState", ["its buffer total at", "`self.total.add_(x.sum())`"]),
        ("GrowingBuffer", ["its buffer past at", "`self.past = torch.cat("]),
    ],
)
def test_state_that_changes_results_is_refused_by_its_name(name: str, words: list[str]) -> None:
    module = getattr(nets, name)().train()
    before = Kept(module)
    with pytest.raises(ExportError) as caught, borrowed(module, torch.float32) as lent:
        make_subject(lent, read_spec(SPEC), BuildRequest(), "net", "net")
    assert all(word in str(caught.value) for word in words), caught.value
    assert "take it as an input and return it" in str(caught.value)
    assert before.changed() == []


@pytest.mark.parametrize("name", ["Rotary", "Remembers"])
def test_state_that_changes_nothing_does_no_harm(name: str, tmp_path: Path) -> None:
    module = getattr(nets, name)()
    held = set(vars(module))
    report = exported(module, tmp_path / "out", check=name == "Rotary")
    assert name != "Rotary" or passes(report)
    assert set(vars(module)) == held


@pytest.mark.parametrize("where", ["attribute", "closure", "object", "partial", "global"])
def test_a_hook_that_collects_keeps_what_it_had(where: str) -> None:
    module = nets.collects(where)
    module(torch.ones(1, 2, nets.WIDTH))
    had = module.count()
    with subjects_from(module, read_spec(SPEC), BuildRequest(), None) as (subject,):
        subject.eager()({"x": torch.ones(1, 2, nets.WIDTH)})
        capture(subject.entry(), subject, subject.variants[0])
        subject.double()
    assert module.count() == had


def test_such_a_hook_does_no_harm(tmp_path: Path) -> None:
    assert passes(exported(nets.collects("attribute"), tmp_path / "out"))


@pytest.mark.parametrize("thing", ["lock", "file", "generator", "condition"])
def test_what_cannot_be_copied_is_run_without_a_copy(thing: str) -> None:
    module = nets.holds(thing)
    subject = subject_of(module)
    assert not subject.copied
    x = torch.randn(2, 5, nets.WIDTH)
    with torch.no_grad():
        truth = subject.double()(x.double())
        moved = subject.perturbed[0](x.double())
        expected = copy.deepcopy(module.mix).double()(x.double()).tanh()
    assert torch.equal(truth, expected)
    assert 0 < (moved - truth).abs().max() < 1e-5


def test_such_a_module_passes(tmp_path: Path) -> None:
    assert passes(exported(nets.holds("lock"), tmp_path / "out"))


def test_a_copy_that_is_needed_and_cannot_be_made(tmp_path: Path) -> None:
    error = refusal(nets.holds("lock"), tmp_path, dtype="fp16")
    assert "attribute thing (lock)" in str(error)
    assert "module.to('cpu', torch.float16)" in str(error)


@pytest.mark.parametrize("state", [{"a": 1}, None, [3], torch.ones(2)], ids=str)
def test_extra_state_is_no_weight(state: Any, tmp_path: Path) -> None:
    subject = subject_of(nets.ExtraState(state))
    assert len(subject.perturbed) > 1
    assert not subject.large
    if state is None:
        formats = ["onnx", "torchscript", "pt2"]
        exported(nets.ExtraState(state), tmp_path / "out", formats=formats, check=False)


@pytest.mark.parametrize("name", nets.MADE)
def test_each_way_of_making_a_module_is_taken(name: str, recwarn: Any) -> None:
    torch.manual_seed(2)
    module = nets.MADE[name]()
    x = torch.randn(3, 7, nets.WIDTH)
    with subjects_from(module, read_spec(SPEC), BuildRequest(), None) as (subject,):
        found = subject.eager()({"x": x})
        program = capture(subject.entry(), subject, subject.variants[0])
        truth = subject.double()(x.double())
    with torch.no_grad():
        assert torch.equal(program.module()(x), found)
    assert torch.allclose(found.double(), truth, atol=1e-5)
    if "compiled" in name or "parallel" in name:
        assert subject.model.name in ("plain", "dropout")
    around = {
        "compiled": "Dropout inside torch.compile",
        "in parallel": "Plain inside DataParallel",
        "compiled in parallel": "Plain inside DataParallel inside torch.compile",
    }
    assert subject.origin.module == around.get(name, subject.origin.module)


@pytest.mark.parametrize("name", ["compiled inside", "captured"])
def test_some_of_them_pass_whole(name: str, tmp_path: Path) -> None:
    module = nets.MADE[name]()
    parts = [*module.modules()]
    assert passes(exported(module, tmp_path / "out"))
    assert [*module.modules()] == parts


def test_a_scripted_module_as_torchscript(tmp_path: Path) -> None:
    module = nets.scripted(nets.Plain())
    exported(module, tmp_path / "out", formats=["torchscript"], check=False)
    x = torch.randn(2, 5, nets.WIDTH)
    script = loaded_script(tmp_path / "out")
    assert torch.equal(script(x), module(x))


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: nets.scripted(nets.Plain()), ["the module (Plain) was made by", "pt2 cannot"]),
        (
            lambda: nets.loaded(nets.Plain()),
            ["the module (Plain) was made by", "TorchScript alone"],
        ),
        (lambda: nets.Holder(nets.scripted(nets.Plain())), ["part (Plain) was made by"]),
        (lambda: torch.jit.freeze(nets.scripted(nets.Plain().eval())), ["torch.jit.freeze"]),
        (
            lambda: nets.quantised(nets.Plain()),
            ["mix (Linear) is quantised", "before quantisation"],
        ),
        (nets.OnMeta, ["(OnMeta) has weights or buffers", "module.to_empty(device='cpu')"]),
        (
            lambda: nets.captured(nets.Plain(), varies=False),
            ["Guard failed", "torch.export keeps the sizes", "give the nn.Module"],
        ),
        (
            lambda: nets.traced(nets.Dropout()),
            ["aten::dropout in drop, ", "`found: Tensor = self.drop(", "torch.jit.trace keeps"],
        ),
        (
            lambda: nets.captured(nets.Dropout()),
            ["random numbers at aten.", "torch.export keeps", "in eval mode"],
        ),
        (nets.AlwaysDropout, ["random numbers at ", "`return F.dropout(x, 0.5)`"]),
    ],
)
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore:torch.quantize_per_tensor")
def test_what_cannot_be_exported_says_what_to_give_instead(
    make: Callable[[], nn.Module], words: list[str], tmp_path: Path
) -> None:
    error = refusal(make(), tmp_path, formats=[])
    assert all(word in str(error) for word in words), error


def test_random_numbers_of_a_scripted_part_are_named_by_its_line(tmp_path: Path) -> None:
    module = nets.Holder(nets.scripted(nets.AlwaysDropout()))
    error = refusal(module, tmp_path, formats=["torchscript"])
    assert "`found: Tensor = self.part(x) * 2`" in str(error)
    error = refusal(nets.scripted(nets.AlwaysDropout()), tmp_path, formats=["torchscript"])
    assert "random numbers at aten::dropout_ in AlwaysDropout" in str(error)


@pytest.mark.parametrize("masked", [False, True])
def test_an_optional_mask_without_annotation_is_left_out_of_torchscript(
    masked: bool, tmp_path: Path
) -> None:
    spec = spec_of(9, x=X, attention_mask=MASK) if masked else SPEC
    module = nets.OptionalMask()
    error = refusal(module, tmp_path, spec, formats=["torchscript"])
    assert "cannot be scripted" in str(error)
    assert "write attention_mask: Tensor | None = None" in str(error)
    if masked:
        report = exported(module, tmp_path / "out", spec, formats=[], check=False)
        assert "attention_mask: Tensor | None" in "".join(report.not_made.values())
        files = {artifact.format for artifact in read(tmp_path / "out").artifacts}
        assert files == {"onnx", "pt2"}
    exported(nets.AnnotatedMask(), tmp_path / "b", spec, formats=["torchscript"], check=False)


def test_a_parametrized_module_is_left_out_of_torchscript(tmp_path: Path) -> None:
    error = refusal(nets.parametrized(nets.Plain()), tmp_path, formats=["torchscript"])
    assert "remove_parametrizations" in str(error)


def weights_of(name: str, tmp_path: Path, **options: Any) -> dict[str, Tensor]:
    """Those that a build of ``name`` would export."""
    argument = "input" if name == "lazy_part" else "x"
    (tmp_path / "x.toml").write_text(
        '[symbols]\nbatch = "2:4"\nsequence = "9"\n'
        f'[inputs.{argument}]\nshape = ["batch", "sequence", {nets.WIDTH}]\n'
    )
    request = BuildRequest(module=f"outside_nets:{name}", inputs=tmp_path / "x.toml", **options)
    with subjects_of_module(request) as (subject,):
        return {name: x.clone() for name, x in subject.module.state_dict().items()}


@pytest.mark.filterwarnings("ignore:Lazy modules")
def test_lazy_weights_follow_the_seed_or_the_file(tmp_path: Path) -> None:
    found = []
    for seed in (1, 1, 2):
        torch.rand(1)
        found.append(weights_of("Lazy", tmp_path, seed=seed)["mix.weight"])
    assert torch.equal(found[0], found[1])
    assert not torch.equal(found[0], found[2])
    wanted = {"0.weight": torch.full((8, 8), 0.5), "0.bias": torch.ones(8)}
    save_file(wanted, tmp_path / "w.safetensors")
    loaded = weights_of("lazy_part", tmp_path, weights=tmp_path / "w.safetensors")
    assert torch.equal(loaded["0.weight"], wanted["0.weight"])


def test_weights_of_a_file_replace_those_on_the_meta_device(tmp_path: Path) -> None:
    path = tmp_path / "w.safetensors"
    wanted = nets.Plain().state_dict() | {"scale": torch.full((nets.WIDTH,), 3.0)}
    save_file(wanted, path)
    found = weights_of("OnMeta", tmp_path, weights=path)
    assert all(torch.equal(found[name], x) for name, x in wanted.items())
    del wanted["scale"]
    save_file(wanted, path)
    with pytest.raises(UsageError, match=r"meta device.*no state dict holds"):
        weights_of("lost_buffer", tmp_path, weights=path)
    save_file(nets.Plain().state_dict(), path)
    with pytest.raises(UsageError, match="lacks scale"):
        weights_of("OnMeta", tmp_path, weights=path)


@pytest.mark.parametrize(
    ("name", "element", "names"),
    [
        ("Levels", X, ["levels_0", "levels_1"]),
        ("TupleOfLevels", X, ["levels_0", "levels_1"]),
        ("NamedLevels", X, ["levels_0", "levels_1"]),
        ("DictsOfLevels", {"x": X}, ["levels_0_x", "levels_1_x"]),
    ],
)
def test_a_list_is_a_table_whose_keys_are_numbers(
    name: str, element: dict[str, Any], names: list[str], tmp_path: Path
) -> None:
    spec = spec_of(9, levels={"0": element, "1": element})
    if name == "Levels":
        assert passes(exported(nets.Levels(), tmp_path / "out", spec))
        artifact = read(tmp_path / "out").artifacts[0]
        assert [item.name for item in artifact.inputs] == names
    else:
        subject = subject_of(getattr(nets, name)(), spec)
        assert [item.name for item in subject.inputs] == names


def test_a_list_has_no_gaps() -> None:
    with pytest.raises(UsageError, match=r"inputs\.levels has the keys 0, 2; a list has 0, 1"):
        read_spec(spec_of(9, levels={"0": X, "2": X}))
