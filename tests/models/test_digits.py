"""The digits model: its weights, and the held-out images that judge them."""

import importlib.util
from types import ModuleType

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file

from linattn import DEFAULT_METHODS
from linattn_models.contract import ModelError, Task
from linattn_models.digits import MODEL, Digits, task, weights_path
from roots import ROOT

TRAINING = ROOT / "models" / "training" / "digits.py"
LEAST_ACCURACY = 0.95


@pytest.fixture(scope="module")
def training() -> ModuleType:
    spec = importlib.util.spec_from_file_location("digits_training", TRAINING)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def held_out() -> Task:
    return task()


@torch.no_grad()
def predictions(name: str, pixels: torch.Tensor) -> torch.Tensor:
    model = Digits(name).eval()
    model.load_state_dict(load_file(weights_path(name)), strict=True)
    logits: torch.Tensor = MODEL.entry(model, False, 0)(pixels)
    return logits.argmax(-1)


def share_equal(predicted: torch.Tensor, labels: torch.Tensor) -> float:
    return (predicted == labels).double().mean().item()


@pytest.mark.parametrize("name", DEFAULT_METHODS)
def test_weights_are_small_fp32_and_say_where_they_come_from(
    name: str, training: ModuleType
) -> None:
    path = weights_path(name)
    assert path.stat().st_size < 300_000
    assert {tensor.dtype for tensor in load_file(path).values()} == {torch.float32}
    with safe_open(path, framework="pt") as file:
        metadata = file.metadata()
    assert metadata["method"] == name
    assert metadata["seed"] == str(training.SEED)
    assert metadata["split"] == training.SPLIT


@pytest.mark.parametrize("name", DEFAULT_METHODS)
def test_held_out_accuracy(name: str, held_out: Task) -> None:
    predicted = predictions(name, held_out.inputs["pixels"])
    reached = share_equal(predicted, held_out.labels)
    assert reached >= LEAST_ACCURACY
    with safe_open(weights_path(name), framework="pt") as file:
        stated = float(file.metadata()["held_out_accuracy"])
    # One image in 360 may fall on the other side on another CPU.
    assert reached == pytest.approx(stated, abs=1.5 / len(held_out.labels))
    # The same predictions against labels of other images: the test above can fail.
    assert share_equal(predicted, held_out.labels.roll(1)) < 0.3


def test_untrained_weights_fail(held_out: Task) -> None:
    torch.manual_seed(0)
    with torch.no_grad():
        predicted = Digits("softmax").eval()(held_out.inputs["pixels"]).argmax(-1)
    assert share_equal(predicted, held_out.labels) < 0.5


def test_no_weights_for_an_unknown_method() -> None:
    with pytest.raises(ModelError, match="no trained weights for method 'nystrom'"):
        weights_path("nystrom")


def test_held_out_file_is_small_and_what_the_split_says(training: ModuleType) -> None:
    path = weights_path("softmax").parent / "held_out.safetensors"
    assert path.stat().st_size < 30_000
    stored = load_file(path)
    _, _, pixels, labels = training.split()
    assert stored["pixels"].dtype == stored["labels"].dtype == torch.uint8
    assert torch.equal(stored["pixels"], pixels)
    assert torch.equal(stored["labels"], labels)
    assert pixels.shape == (360, 64)
    assert pixels.max() == 16


def test_no_held_out_image_is_trained_on(training: ModuleType) -> None:
    train_pixels, train_labels, pixels, labels = training.split()
    assert len(train_pixels) == len(train_labels) == 1437
    seen = {image.numpy().tobytes() for image in train_pixels}
    assert not [image for image in pixels if image.numpy().tobytes() in seen]
    everything = torch.cat([train_labels, labels]).bincount() * (360 / 1797)
    assert torch.allclose(labels.bincount().float(), everything, atol=1)


def test_task_scales_pixels_to_one(held_out: Task) -> None:
    assert held_out.inputs["pixels"].dtype == torch.float32
    assert held_out.inputs["pixels"].min() == 0
    assert held_out.inputs["pixels"].max() == 1
    assert held_out.labels.dtype == torch.int64
