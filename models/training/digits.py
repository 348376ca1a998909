"""Trains the digits model with every attention method and writes the weights that ship with it.

    python models/training/digits.py [-m METHOD]...

Split: 360 of the 1797 images of scikit-learn's ``load_digits`` are held out, drawn by
``train_test_split`` stratified by label with the seed below; the other 1437 are trained on.
The held-out images are read after training only, to write down the accuracy: hyper-parameters
were chosen on a quarter of the 1437, are the same for every method, and the weights of the last
epoch are the ones that are kept. One thread, so that the number of cores does not change the
result; another CPU or torch version may. Tensors repeat, files need not: safetensors writes
metadata in no fixed order.

Two choices matter. Positions start as waves along rows and columns: from random positions a model
has to learn which pixels are neighbours; softmax and elu then validate two to four points lower.
Images are moved by half a pixel at most: with moves by a whole pixel, of eight, every method but
linformer was below 90% on the validation images after 30 epochs.
"""

import math
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import torch
import typer
from safetensors.torch import save_file
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch import Tensor, nn

from linattn import DEFAULT_METHODS, method
from linattn_models.digits import D_MODEL, PIXELS, Digits

SEED = 0
HELD_OUT = 360
EPOCHS = 60
BATCH = 32
LEARNING_RATE = 3e-3
WARMUP = 0.1
WEIGHT_DECAY = 0.05
LABEL_SMOOTHING = 0.1
MAX_SHIFT = 0.5  # pixels
SIDE = 8
SPLIT = f"sklearn load_digits, train_test_split(test_size={HELD_OUT}, stratify, seed {SEED})"
WEIGHTS = Path(__file__).parents[1] / "linattn_models" / "weights" / "digits"


def split() -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Training pixels and labels, then held-out ones; uint8 ``[images, 64]`` and ``[images]``."""
    pixels, labels = load_digits(return_X_y=True)
    train, held_out = train_test_split(
        range(len(labels)), test_size=HELD_OUT, stratify=labels, random_state=SEED
    )
    images = torch.from_numpy(pixels).to(torch.uint8)
    digits = torch.from_numpy(labels).to(torch.uint8)
    return images[train], digits[train], images[held_out], digits[held_out]


def wave_positions() -> Tensor:
    """Position embeddings ``[64, M]`` to start from: sines and cosines of the row and column."""
    row, column = torch.arange(PIXELS) // SIDE, torch.arange(PIXELS) % SIDE
    frequencies = math.pi / SIDE * torch.linspace(0.5, 4, D_MODEL // 4)
    angles = [row[:, None] * frequencies, column[:, None] * frequencies]
    return 0.7 * torch.cat([wave(angle) for angle in angles for wave in (torch.sin, torch.cos)], 1)


def shifted(pixels: Tensor, generator: torch.Generator) -> Tensor:
    """Each image ``[B, 64]`` moved along both sides by up to MAX_SHIFT, zeros coming in."""
    count = len(pixels)
    move = torch.eye(2, 3).repeat(count, 1, 1)
    # Coordinates go from -1 to 1 along a side.
    limit = 2 * MAX_SHIFT / SIDE
    move[:, :, 2] = limit * (2 * torch.rand(count, 2, generator=generator) - 1)
    shape = [count, 1, SIDE, SIDE]
    grid = nn.functional.affine_grid(move, shape, align_corners=False)
    images = nn.functional.grid_sample(pixels.reshape(shape), grid, align_corners=False)
    return images.reshape(count, PIXELS)


def batches(count: int, generator: torch.Generator) -> Iterator[Tensor]:
    """The indices of one epoch in random order; a last batch that is not full is left out."""
    order = torch.randperm(count, generator=generator)
    yield from order[: count - count % BATCH].reshape(-1, BATCH).unbind(0)


def rate(done: float) -> float:
    """The factor of the learning rate when a share ``done`` of the steps is done."""
    if done < WARMUP:
        return done / WARMUP
    return 0.5 * (1 + math.cos(math.pi * (done - WARMUP) / (1 - WARMUP)))


def train(name: str, pixels: Tensor, labels: Tensor) -> Digits:
    """Train the model with method ``name`` on ``pixels`` in [0, 1] and int64 ``labels``."""
    torch.manual_seed(SEED)
    generator = torch.Generator().manual_seed(SEED)
    model = Digits(name)
    with torch.no_grad():
        model.position.copy_(wave_positions())
    matrices = [p for p in model.parameters() if p.dim() > 1 and p is not model.position]
    others = [p for p in model.parameters() if p.dim() == 1 or p is model.position]
    optimizer = torch.optim.AdamW(
        [{"params": matrices, "weight_decay": WEIGHT_DECAY}, {"params": others, "weight_decay": 0}],
        lr=LEARNING_RATE,
    )
    steps = EPOCHS * (len(labels) // BATCH)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: rate((step + 0.5) / steps))
    for _ in range(EPOCHS):
        for chosen in batches(len(labels), generator):
            logits = model(shifted(pixels[chosen], generator))
            loss = nn.functional.cross_entropy(
                logits, labels[chosen], label_smoothing=LABEL_SMOOTHING
            )
            optimizer.zero_grad()
            torch.autograd.backward(loss)
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            schedule.step()
    return model.eval()


@torch.no_grad()
def accuracy(model: nn.Module, pixels: Tensor, labels: Tensor) -> float:
    """The share of images whose largest logit is their label."""
    logits: Tensor = model(pixels)
    return (logits.argmax(-1) == labels).double().mean().item()


def main(
    methods: Annotated[
        list[str] | None,
        typer.Option("--method", "-m", help="default: all that are not causal"),
    ] = None,
) -> None:
    """Train and write the weights; see the head of this file."""
    torch.set_num_threads(1)
    names = [method(name).name for name in methods or DEFAULT_METHODS]
    train_pixels, train_labels, held_pixels, held_labels = split()
    WEIGHTS.mkdir(parents=True, exist_ok=True)
    save_file({"pixels": held_pixels, "labels": held_labels}, WEIGHTS / "held_out.safetensors")
    for name in names:
        start = time.monotonic()
        model = train(name, train_pixels.float() / 16, train_labels.long())
        reached = accuracy(model, held_pixels.float() / 16, held_labels.long())
        metadata = {
            "method": name,
            "held_out_accuracy": f"{reached:.4f}",
            "seed": str(SEED),
            "split": SPLIT,
        }
        save_file(model.state_dict(), WEIGHTS / f"{name}.safetensors", metadata=metadata)
        print(f"{name}: held-out accuracy {reached:.4f}, {time.monotonic() - start:.0f} s")


if __name__ == "__main__":
    typer.run(main)
