"""Trains the bytes model on the docstrings of the standard library, and writes its weights.

    python models/training/bytes.py [-m METHOD]...

Text: every docstring of the modules in ``sys.stdlib_module_names`` whose source is here, read by
``ast`` (nothing is imported), tests left out; each once, in the order of the files. One module in
twenty is held out, drawn by the seed below, with all that is inside it; a docstring that is also in
another module counts as trained on. Held-out bytes are read after training only.
One thread, so that the number of cores does not change the result; another CPU, torch or Python
version may. About ten minutes a method. ``gated_delta`` reaches 2.37 bits per byte on held-out
text, where the frequencies of its bytes alone give 4.84. ``held_out.safetensors`` holds 128 windows
of that text, evenly spaced, which the exported files are scored on: less is known at the start of a
window, so that it comes to 2.43 there.
"""

import ast
import inspect
import math
import random
import sys
import sysconfig
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import torch
import typer
from safetensors.torch import save_file
from torch import Tensor, nn

from linattn_models.bytes import ByteModel

SEED = 0
HELD_OUT = 0.05  # of the modules
STEPS = 1300
BATCH = 8
LENGTH = 256
LEARNING_RATE = 4e-3
WARMUP = 0.05
WEIGHT_DECAY = 0.05
BETWEEN = "\n\n"
WINDOWS, WINDOW = 128, 128
WEIGHTS = Path(__file__).parents[1] / "linattn_models" / "weights" / "bytes"
_TESTS = {"test", "tests", "idle_test", "__pycache__"}


def files(module: str) -> list[Path]:
    """The source files of a top-level module of the standard library, sorted."""
    library = Path(sysconfig.get_path("stdlib"))
    alone = library / f"{module}.py"
    if alone.is_file():
        return [alone]
    inside = sorted((library / module).rglob("*.py"))
    return [path for path in inside if not _TESTS & {*path.relative_to(library).parts}]


def docstrings(path: Path) -> Iterator[str]:
    """The docstrings of a source file, without their indentation."""
    for node in ast.walk(ast.parse(path.read_bytes())):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            found = ast.get_docstring(node, clean=False)
            if found is not None and found.strip():
                yield inspect.cleandoc(found).strip()


def split() -> tuple[bytes, bytes, list[str]]:
    """Text to train on, held-out text, and the modules that the latter is of."""
    known = {
        name: [text for path in files(name) for text in docstrings(path)]
        for name in sorted(sys.stdlib_module_names)
    }
    names = [name for name, texts in known.items() if texts]
    held = sorted(random.Random(SEED).sample(names, round(HELD_OUT * len(names))))
    # Without those that occurred before, in the order of the files.
    train = dict.fromkeys(text for name in names if name not in held for text in known[name])
    rest = dict.fromkeys(text for name in held for text in known[name] if text not in train)
    return BETWEEN.join(train).encode(), BETWEEN.join(rest).encode(), held


def as_tokens(text: bytes) -> Tensor:
    """Int64 ``[bytes]``."""
    return torch.tensor(list(text))


def batches(text: Tensor, generator: torch.Generator) -> Iterator[Tensor]:
    """Windows ``[BATCH, LENGTH + 1]`` without end: all of the text in random order, and again."""
    while True:
        first = int(torch.randint(LENGTH, (1,), generator=generator))
        windows = text[first:].unfold(0, LENGTH + 1, LENGTH)
        order = torch.randperm(len(windows), generator=generator)
        for chosen in order[: len(order) - len(order) % BATCH].reshape(-1, BATCH):
            yield windows[chosen]


def rate(done: float) -> float:
    """The factor of the learning rate when a share ``done`` of the steps is done."""
    if done < WARMUP:
        return done / WARMUP
    return 0.02 + 0.49 * (1 + math.cos(math.pi * (done - WARMUP) / (1 - WARMUP)))


def loss_of(model: nn.Module, windows: Tensor) -> Tensor:
    """Nats per byte of ``windows [B, N + 1]``, each byte from those before it in its window."""
    logits = model(windows[:, :-1])
    return nn.functional.cross_entropy(logits.flatten(0, 1), windows[:, 1:].flatten())


def train(name: str, text: Tensor) -> ByteModel:
    """Train the model with method ``name`` on int64 ``[bytes]``."""
    torch.manual_seed(SEED)
    generator = torch.Generator().manual_seed(SEED)
    model = ByteModel(name)
    matrices = [p for p in model.parameters() if p.dim() > 1]
    others = [p for p in model.parameters() if p.dim() == 1]
    optimizer = torch.optim.AdamW(
        [{"params": matrices, "weight_decay": WEIGHT_DECAY}, {"params": others, "weight_decay": 0}],
        lr=LEARNING_RATE,
        betas=(0.9, 0.98),
    )
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: rate((step + 0.5) / STEPS))
    source = batches(text, generator)
    for step in range(STEPS):
        loss = loss_of(model, next(source))
        optimizer.zero_grad()
        torch.autograd.backward(loss)
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        if (step + 1) % 50 == 0:
            print(f"step {step + 1}: {loss.item() / math.log(2):.3f} bits per byte", flush=True)
    return model.eval()


@torch.no_grad()
def bits_per_byte(model: nn.Module, text: Tensor, length: int = 1024) -> float:
    """Of int64 ``[bytes]``, in windows of ``length``."""
    windows = text[: len(text) - (len(text) - 1) % length].unfold(0, length + 1, length)
    losses = [loss_of(model, window[None]).item() for window in windows]
    return sum(losses) / len(losses) / math.log(2)


def held_out_windows(text: Tensor) -> Tensor:
    """Uint8 ``[WINDOWS, WINDOW + 1]`` of int64 ``[bytes]``, evenly spaced."""
    starts = torch.linspace(0, len(text) - WINDOW - 1, WINDOWS).long()
    return text.unfold(0, WINDOW + 1, 1)[starts].to(torch.uint8)


def main(
    methods: Annotated[
        list[str] | None, typer.Option("--method", "-m", help="default: gated_delta")
    ] = None,
) -> None:
    """Train and write the weights; see the head of this file."""
    torch.set_num_threads(1)
    text, held_out, held = split()
    print(f"{len(text)} bytes; held out {len(held_out)} of {', '.join(held)}", flush=True)
    WEIGHTS.mkdir(parents=True, exist_ok=True)
    about = {
        "source": f"docstrings of {', '.join(held)} of Python {sys.version.split()[0]}",
        "license": "PSF-2.0, copyright Python Software Foundation",
    }
    windows = held_out_windows(as_tokens(held_out)).contiguous()
    save_file({"windows": windows}, WEIGHTS / "held_out.safetensors", metadata=about)
    for name in methods or ["gated_delta"]:
        start = time.monotonic()
        model = train(name, as_tokens(text))
        reached = bits_per_byte(model, as_tokens(held_out))
        metadata = {
            "method": name,
            "held_out_bits_per_byte": f"{reached:.3f}",
            "held_out": " ".join(held),
            "seed": str(SEED),
            "text": f"docstrings of the standard library of Python {sys.version.split()[0]}",
        }
        save_file(model.state_dict(), WEIGHTS / f"{name}.safetensors", metadata=metadata)
        print(f"{name}: held-out {reached:.3f} bits per byte, {time.monotonic() - start:.0f} s")


if __name__ == "__main__":
    typer.run(main)
