"""The bytes model: its weights, what it predicts, and that it goes on from a state."""

import importlib.util
import math
import sys
from collections import Counter
from pathlib import Path
from types import ModuleType

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file
from torch import Tensor

from linattn_export.build.pipeline import build
from linattn_export.options.request import BuildRequest
from linattn_models import MODELS, ModelError, ModelOptions
from linattn_models.bytes import MODEL, ByteModel, task, weights_path
from linattn_models.trained import FOLDER
from linattn_runtime_checks.contract.errors import ExitCode
from linattn_runtime_checks.contract.metrics import METRICS
from roots import ROOT
from siblings import siblings

TRAINING = ROOT / "models" / "training" / "bytes.py"
TRAINED = sorted({path.stem for path in (FOLDER / "bytes").glob("*.safetensors")} - {"held_out"})
WITHOUT_CONVOLUTION = "retention"


@pytest.fixture(scope="module")
def training() -> ModuleType:
    spec = importlib.util.spec_from_file_location("bytes_training", TRAINING)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def trained(name: str) -> ByteModel:
    model = ByteModel(name).eval()
    model.load_state_dict(load_file(weights_path(name)), strict=True)
    return model


def metadata_of(name: str) -> dict[str, str]:
    with safe_open(weights_path(name), framework="pt") as file:
        found: dict[str, str] = file.metadata()
    return found


def zeros(model: ByteModel, batch: int) -> list[Tensor]:
    return [torch.zeros(batch, *spec.shape) for spec in model.state_specs()]


def test_weights_ship_for_some_method() -> None:
    assert "gated_delta" in TRAINED
    assert MODELS["bytes"] is MODEL


@pytest.mark.parametrize("name", TRAINED)
def test_weights_are_small_fp32_and_say_where_they_come_from(
    name: str, training: ModuleType
) -> None:
    path = weights_path(name)
    assert path.stat().st_size < 1_000_000
    assert {tensor.dtype for tensor in load_file(path).values()} == {torch.float32}
    metadata = metadata_of(name)
    assert metadata["method"] == name
    assert metadata["seed"] == str(training.SEED)
    assert "docstrings of the standard library" in metadata["text"]


def held_out_text(name: str, training: ModuleType) -> Tensor:
    """Of this Python; the weights were made with another, maybe, whose docstrings differ a bit."""
    texts = [
        text
        for module in metadata_of(name)["held_out"].split()
        for path in training.files(module)  # none where this Python has no such module
        for text in training.docstrings(path)
    ]
    found: Tensor = training.as_tokens(training.BETWEEN.join(texts).encode())
    return found


def bits_by_frequency(text: Tensor) -> float:
    """Bits per byte of the best code that knows how often each byte occurs, and nothing else."""
    shares = [count / len(text) for count in Counter(text.tolist()).values()]
    return -sum(share * math.log2(share) for share in shares)


@pytest.mark.slow
@pytest.mark.parametrize("name", TRAINED)
@torch.no_grad()
def test_held_out_docstrings_are_predicted(name: str, training: ModuleType) -> None:
    text = held_out_text(name, training)[: 6 * 1024 + 1]
    model = trained(name)
    assert training.bits_per_byte(model, text) < 0.6 * bits_by_frequency(text)
    # The same bytes from the last to the first: the test above can fail.
    assert training.bits_per_byte(model, text[:2049].flip(0)) > bits_by_frequency(text)


@pytest.mark.slow
@pytest.mark.parametrize("name", TRAINED)
def test_held_out_bits_per_byte_are_those_stated(name: str, training: ModuleType) -> None:
    reached = training.bits_per_byte(trained(name), held_out_text(name, training))
    assert reached == pytest.approx(float(metadata_of(name)["held_out_bits_per_byte"]), abs=0.1)


@pytest.mark.slow
def test_no_held_out_docstring_is_trained_on(training: ModuleType) -> None:
    text, held_out, modules = training.split()
    parts = {part for part in held_out.split(b"\n\n") if len(part) > 200}
    assert len(parts) > 20
    # A paragraph may be in two docstrings that differ elsewhere.
    assert len([part for part in parts if part in text]) < 0.05 * len(parts)
    assert len(modules) < 0.06 * len(sys.stdlib_module_names)


HELD_OUT = FOLDER / "bytes" / "held_out.safetensors"


@torch.no_grad()
def test_the_windows_that_artifacts_are_scored_on(training: ModuleType) -> None:
    assert HELD_OUT.stat().st_size < 200_000
    found = task()
    tokens, labels = found.inputs["tokens"], found.labels
    assert tokens.shape == labels.shape == (training.WINDOWS, training.WINDOW)
    assert torch.equal(tokens[:, 1:], labels[:, :-1])
    assert tokens.dtype == labels.dtype == torch.int64
    logits = trained("gated_delta")(tokens[::4])
    bits = METRICS[found.metric].score(logits.numpy(), labels[::4].numpy())
    windows = torch.cat([tokens, labels[:, -1:]], dim=1)[::4]
    loss = training.loss_of(trained("gated_delta"), windows).item() / math.log(2)
    assert bits == pytest.approx(loss, abs=1e-4)
    assert bits == pytest.approx(2.43, abs=0.1)
    others = METRICS[found.metric].score(logits.numpy(), labels[1::4].numpy())
    assert others > 2 * bits


@pytest.mark.slow
def test_the_windows_are_of_held_out_text(training: ModuleType) -> None:
    with safe_open(HELD_OUT, framework="pt") as file:
        source = file.metadata()["source"]
    version = sys.version.split()[0]
    if not source.endswith(f" of Python {version}"):
        pytest.skip(f"{source}, and this is {version}: docstrings differ")
    _, held_out, _ = training.split()
    windows = training.held_out_windows(training.as_tokens(held_out))
    assert torch.equal(load_file(HELD_OUT)["windows"], windows)


@pytest.mark.slow
def test_graphs_that_go_on_from_a_state_are_scored_too(tmp_path: Path) -> None:
    request = BuildRequest(
        output=tmp_path / "out", models=("bytes",), methods=("gated_delta",), formats=("onnx",),
        entries=("prefill", "step"), lengths=(), dynamic="1:64", latency=False, quiet=True,
    )  # fmt: skip
    report = build(request)
    assert report.exit_code is ExitCode.PASS, report.model_dump_json(indent=1)
    scores = [runtime.task for artifact in report.artifacts for runtime in artifact.runtimes]
    assert len(scores) == 2
    for score in scores:
        assert score is not None
        assert score.score == pytest.approx(score.reference_score, abs=1e-3)
        assert score.reference_score == pytest.approx(2.43, abs=0.01)


@pytest.mark.parametrize("name", ["gated_delta", WITHOUT_CONVOLUTION])
@torch.no_grad()
def test_prefill_and_steps_are_the_whole(name: str) -> None:
    torch.manual_seed(0)
    model = ByteModel(name).eval().double()
    tokens = torch.randint(256, (3, 70))
    whole = model(tokens)
    states = [state.double() for state in zeros(model, 3)]
    logits, states = model.advance(tokens[:, :66], None, states, False)
    parts = [logits]
    for place in range(66, 70):
        logits, states = model.advance(tokens[:, place : place + 1], None, states, True)
        parts.append(logits)
    assert whole.shape == (3, 70, 256)
    assert torch.allclose(torch.cat(parts, dim=1), whole, rtol=0, atol=1e-10)
    intact, _ = model.advance(tokens[:, :1], None, states, True)
    for layer in range(2):  # each layer's states count
        for index, state in enumerate(states):
            lost = [s.clone() for s in states]
            half = state.size(1) // 2
            lost[index][:, layer * half : (layer + 1) * half] = 0
            other, _ = model.advance(tokens[:, :1], None, lost, True)
            assert (other - intact).abs().max() > 1e-6


@torch.no_grad()
def test_masked_tokens_leave_no_trace() -> None:
    torch.manual_seed(0)
    model = ByteModel("gated_delta").eval().double()
    empty = [state.double() for state in zeros(model, 1)]
    tokens = torch.randint(256, (1, 9))
    _, states = model.advance(tokens, None, empty, False)
    padded = torch.cat([torch.randint(256, (1, 4)), tokens], dim=1)
    mask = torch.arange(13)[None] >= 4
    _, after = model.advance(padded, mask, empty, False)
    for one, other in zip(states, after, strict=True):
        assert torch.allclose(one, other, rtol=0, atol=1e-10)


@pytest.mark.parametrize("name", siblings([WITHOUT_CONVOLUTION, "gated_delta"]))
@torch.no_grad()
def test_scripted_is_eager(name: str) -> None:
    torch.manual_seed(0)
    model = ByteModel(name).eval()
    assert MODEL.streaming is not None
    entry = torch.jit.script(MODEL.entry(model, False, 0))
    prefill = MODEL.streaming.prefill(model, False, 0)
    scripted = torch.jit.script(prefill)
    for length in (1, 70):
        tokens = torch.randint(256, (2, length))
        assert torch.allclose(entry(tokens), model(tokens), atol=1e-5)
        expected = prefill(tokens, *zeros(model, 2))
        for one, other in zip(scripted(tokens, *zeros(model, 2)), expected, strict=True):
            assert torch.allclose(one, other, atol=1e-5)


def test_what_it_refuses() -> None:
    with pytest.raises(ModelError, match="carries a state, which elu does not; use gated_delta"):
        ByteModel("elu")
    with pytest.raises(ModelError, match="no trained weights for method 'mamba2'"):
        weights_path("mamba2")
    with pytest.raises(ModelError, match=r"fixed size \(d_model 96, 4 heads\).* `heads=8`"):
        MODEL.build(ModelOptions(method="gated_delta", heads=8))
    with pytest.raises(ValueError, match=r"tokens must be \[batch, sequence\]"):
        ByteModel(WITHOUT_CONVOLUTION)(torch.zeros(3, dtype=torch.int64))
