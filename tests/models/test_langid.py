"""The langid model: its weights, the held-out texts that judge them, and its mask."""

import importlib.util
import json
from pathlib import Path
from types import ModuleType

import onnx
import onnxruntime as ort
import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file
from torch import Tensor

from linattn_export.build.pipeline import build
from linattn_export.options.request import BuildRequest
from linattn_export.subjects.making import make_subjects
from linattn_models import MODELS, ModelError, ModelOptions, Task
from linattn_models.langid import LANGUAGES, MODEL, TEXT, LanguageModel, task, weights_path
from linattn_models.trained import FOLDER
from linattn_runtime_checks.contract import manifest
from linattn_runtime_checks.contract.errors import ExitCode
from linattn_runtime_checks.faults.editing import Graph
from linattn_runtime_checks.faults.masks import mask_on_value_only
from linattn_runtime_checks.faults.mathematics import normaliser_dropped
from linattn_runtime_checks.results.report import Report
from roots import ROOT

TRAINING = ROOT / "models" / "training" / "langid.py"
HELD_OUT = FOLDER / "langid" / "held_out.safetensors"
TRAINED = sorted({path.stem for path in HELD_OUT.parent.glob("*.safetensors")} - {"held_out"})


@pytest.fixture(scope="module")
def training() -> ModuleType:
    spec = importlib.util.spec_from_file_location("langid_training", TRAINING)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def held_out() -> Task:
    return task()


def trained(name: str) -> LanguageModel:
    model = LanguageModel(name).eval()
    model.load_state_dict(load_file(weights_path(name)), strict=True)
    return model


def metadata_of(path: Path) -> dict[str, str]:
    with safe_open(path, framework="pt") as file:
        found: dict[str, str] = file.metadata()
    return found


def texts_of(known: Task) -> list[bytes]:
    tokens, mask = known.inputs["tokens"], known.inputs["attention_mask"]
    return [bytes(row[real].tolist()) for row, real in zip(tokens, mask, strict=True)]


def test_weights_ship_for_a_linear_method() -> None:
    assert "elu" in TRAINED
    assert MODELS["langid"] is MODEL


@pytest.mark.parametrize("name", TRAINED)
def test_weights_are_small_fp32_and_say_where_they_come_from(
    name: str, training: ModuleType
) -> None:
    path = weights_path(name)
    assert path.stat().st_size < 1_000_000
    assert {tensor.dtype for tensor in load_file(path).values()} == {torch.float32}
    metadata = metadata_of(path)
    assert (metadata["method"], metadata["seed"]) == (name, str(training.SEED))
    assert metadata["text"] == metadata_of(HELD_OUT)["source"]
    assert metadata["text"].startswith("django 5.")
    assert metadata_of(HELD_OUT)["license"] == training.LICENSE


def test_held_out_texts_are_whole_letters_of_many_languages(held_out: Task) -> None:
    assert HELD_OUT.stat().st_size < 200_000
    texts = texts_of(held_out)
    assert all(text.decode() for text in texts)
    assert {len(text) for text in texts} <= set(range(16, TEXT + 1))
    assert len(set(texts)) == len(texts)
    assert held_out.labels.bincount().tolist() == [25] * len(LANGUAGES)
    assert len(set(LANGUAGES)) == len(MODEL.labels) >= 20
    assert {"es", "pt", "nb", "sv", "da", "cs", "sk", "ru", "uk", "bg"} <= set(LANGUAGES)


@pytest.mark.parametrize("name", TRAINED)
def test_held_out_accuracy_is_that_stated(name: str, held_out: Task, training: ModuleType) -> None:
    texts = texts_of(held_out)
    found = training.told(trained(name), texts)
    reached = training.by_length(texts, found == held_out.labels)
    stated = metadata_of(weights_path(name))
    assert reached["held_out_accuracy"] > 0.85
    for key, share in reached.items():
        # A text or two of hundreds may fall on the other side on another CPU.
        assert share == pytest.approx(float(stated[key]), abs=0.006)
    assert reached["held_out_accuracy_64_to_128"] > reached["held_out_accuracy_16_to_31"]
    assert (found == held_out.labels.roll(25)).double().mean() < 0.1
    torch.manual_seed(0)
    untrained = training.told(LanguageModel(name).eval(), texts[::25])
    assert (untrained == held_out.labels[::25]).double().mean() < 0.2


@torch.no_grad()
def logits(model: LanguageModel, tokens: Tensor, mask: Tensor | None) -> Tensor:
    found: Tensor = model(tokens, mask)
    return found


def test_padding_on_either_side_changes_nothing_whatever_it_holds() -> None:
    model = trained("elu")
    text = torch.tensor([list("Où est la bibliothèque".encode())])
    alone = logits(model, text, None)
    for left, right in ((0, 9), (9, 0), (4, 5)):
        mask = torch.zeros(1, text.size(1) + 9, dtype=torch.bool)
        mask[:, left : mask.size(1) - right] = True
        outputs = []
        for garbage in (0, 255, -1, 10**9):
            tokens = torch.full(mask.shape, garbage)
            tokens[mask] = text[0]
            outputs.append(logits(model, tokens, mask))
        assert all(torch.equal(output, outputs[0]) for output in outputs)
        assert torch.allclose(outputs[0], alone, atol=1e-5)
        uncovered = logits(model, torch.full(mask.shape, 255).where(~mask, 66), None)
        assert not torch.allclose(uncovered, alone, atol=1e-2)


def test_a_text_without_a_byte_has_zeros_for_logits_and_leaves_the_others_alone() -> None:
    model = trained("elu")
    tokens = torch.randint(256, (3, 20), generator=torch.Generator().manual_seed(0))
    mask = torch.ones(3, 20, dtype=torch.bool)
    whole = logits(model, tokens, mask)
    mask[1] = False
    output = logits(model, tokens, mask)
    assert not output[1].any()
    assert torch.allclose(output[[0, 2]], whole[[0, 2]], atol=1e-6)
    assert whole[1].any()


@pytest.mark.parametrize("masked", [False, True])
@torch.no_grad()
def test_scripted_is_eager(masked: bool) -> None:
    entry = MODEL.entry(trained("elu"), masked, 0).eval()
    scripted = torch.jit.script(entry)
    for length in (1, 2, 33):
        tokens = torch.randint(256, (2, length))
        inputs = (tokens, torch.arange(length) < torch.tensor([[1], [length]]))[: 1 + masked]
        assert torch.allclose(scripted(*inputs), entry(*inputs), atol=1e-5)


def test_what_it_refuses() -> None:
    with pytest.raises(ModelError, match="no trained weights for method 'gla'"):
        weights_path("gla")
    with pytest.raises(ModelError, match=r"fixed size \(d_model 80, 4 heads\).* `heads=8`"):
        MODEL.build(ModelOptions(method="elu", heads=8))
    model = LanguageModel("elu")
    with pytest.raises(ValueError, match=r"tokens must be \[batch, sequence\], got .*3"):
        model(torch.zeros(3, dtype=torch.int64))
    with pytest.raises(ValueError, match=r"mask must have shape .*2, 3.* got .*2, 4"):
        model(torch.zeros(2, 3, dtype=torch.int64), torch.ones(2, 4, dtype=torch.bool))
    with pytest.raises(ValueError, match="fixed to sequence length 4, got 3"):
        MODEL.entry(model, False, 4)(torch.zeros(2, 3, dtype=torch.int64))


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Report]:
    request = BuildRequest(
        output=tmp_path_factory.mktemp("langid") / "out", models=("langid",), methods=("elu",),
        formats=("onnx",), lengths=(), dynamic="127:128", batch="1:2", latency=False, quiet=True,
    )  # fmt: skip
    report = build(request)
    assert report.exit_code is ExitCode.PASS, report.model_dump_json(indent=1)
    return request.output, report


@pytest.mark.slow
def test_languages_are_named_in_the_manifest_and_in_the_file(built: tuple[Path, Report]) -> None:
    folder, report = built
    (artifact,) = manifest.read(folder).artifacts
    assert artifact.labels == list(LANGUAGES)
    assert [spec.name for spec in artifact.inputs] == ["tokens", "attention_mask"]
    assert artifact.outputs[0].shape == ["batch", len(LANGUAGES)]
    stored = onnx.load(folder / artifact.path)
    told = {item.key: item.value for item in stored.metadata_props}
    assert json.loads(told["linattn.labels"]) == list(LANGUAGES)
    assert "True = a real token" in told["linattn.mask"]
    (runtime,) = report.artifacts[0].runtimes
    assert runtime.task is not None
    stated = float(metadata_of(weights_path("elu"))["held_out_accuracy"])
    assert runtime.task.score == pytest.approx(stated, abs=0.006)
    assert {check.name for check in runtime.checks} >= {"padding", "alone", "deterministic"}


@pytest.mark.slow
def test_faults_of_attention_are_planted_in_attention(built: tuple[Path, Report]) -> None:
    """The table of bytes has a mask of its own, and the mean over tokens a division."""
    folder, _ = built
    (artifact,) = manifest.read(folder).artifacts
    path = folder / artifact.path
    inputs = {name: x[:2, :127].numpy() for name, x in task().inputs.items()}

    def output(model: bytes) -> Tensor:
        session = ort.InferenceSession(model, providers=["CPUExecutionProvider"])
        return torch.from_numpy(session.run(["output"], inputs)[0])

    damaged = onnx.load(path)
    assert mask_on_value_only(Graph(damaged), artifact)
    assert (output(damaged.SerializeToString()) - output(path.read_bytes())).abs().max() > 0.01
    graph = Graph(onnx.load(path))
    mean = graph.of_type("Div")[-1].output[0]
    assert not graph.comes_from_a(graph.of_type("Div")[-1].input[1], "MatMul")
    assert normaliser_dropped(graph, artifact)
    assert graph.of_type("Div")[-1].output[0] == mean


def test_what_is_built_where_no_method_is_named_has_weights() -> None:
    for model, methods in (("langid", ["elu"]), ("bytes", ["gated_delta"])):
        subjects = make_subjects(BuildRequest(models=(model,), entries=("forward",)))
        assert [subject.method for subject in subjects] == methods
