"""Generates text from the step graph with onnxruntime and numpy: what a decoder needs, and no more.

    python examples/generate.py [--prompt TEXT] [--tokens 500] [--temperature 0] [--seed 0]
        [--folder DIR] [--check]

Without --folder, ``linattn-export build`` first writes the graphs of the model ``bytes`` into a
temporary folder, which takes a minute. --check decodes again with eager PyTorch and exits 1 if a
token differs; this and the build are the only places that need torch. Copy what is between the two
lines.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort
from numpy.typing import NDArray

METHOD = "gated_delta"

# ------------------------------------------------------------------------------------------------


def open_graph(folder: Path, entry: str) -> tuple[ort.InferenceSession, dict[str, Any]]:
    """The session of graph ``entry`` of the model bytes, and what the manifest says of it."""
    manifest = json.loads((folder / "linattn_manifest.json").read_text(encoding="utf-8"))
    for artifact in manifest["artifacts"]:
        if (artifact["model"], artifact["format"], artifact["entry"]) == ("bytes", "onnx", entry):
            options = ort.SessionOptions()
            options.intra_op_num_threads = 1  # one token is too little work to share
            path = str(folder / artifact["path"])
            return ort.InferenceSession(path, options, ["CPUExecutionProvider"]), artifact
    raise SystemExit(f"{folder} holds no ONNX file of bytes/{entry}; build it with --entry {entry}")


Choose = Callable[[NDArray[Any]], int]


def chooser(temperature: float, seed: int = 0) -> Choose:
    """From logits ``[256]`` to a byte: the likeliest, or at a temperature above 0 a drawn one."""
    random = np.random.default_rng(seed)

    def choose(logits: NDArray[Any]) -> int:
        if temperature > 0:
            logits = logits / temperature + random.gumbel(size=logits.shape)
        return int(logits.argmax())

    return choose


def generate(folder: Path, prompt: bytes, count: int, choose: Choose) -> Iterator[int]:
    """``count`` bytes that follow ``prompt``.

    The prompt goes through the prefill graph at once, from states of zeros. Each byte then goes
    through the step graph, which reads one set of states and writes the other; the sets swap.
    No state is allocated on the way, however long it is.
    """
    prefill, about = open_graph(folder, "prefill")
    links = about["states"]
    logits_name = about["outputs"][0]["name"]
    feed = {about["inputs"][0]["name"]: np.array([list(prompt)], dtype=np.int64)}
    for link in links:
        feed[link["input"]] = np.zeros([1, *link["shape"][1:]], dtype=link["dtype"])
    names = [logits_name, *(link["output"] for link in links)]
    first, *after = prefill.run(names, feed)

    session, about = open_graph(folder, "step")
    token = ort.OrtValue.ortvalue_from_numpy(np.zeros([1, 1], dtype=np.int64))
    logits = ort.OrtValue.ortvalue_from_numpy(np.zeros_like(first[:, -1:]))
    states = [
        [ort.OrtValue.ortvalue_from_numpy(state.copy()) for state in after],
        [ort.OrtValue.ortvalue_from_numpy(np.zeros_like(state)) for state in after],
    ]
    bindings = []
    for old, new in (states, states[::-1]):
        binding = session.io_binding()
        binding.bind_ortvalue_input(about["inputs"][0]["name"], token)
        binding.bind_ortvalue_output(about["outputs"][0]["name"], logits)
        for link, source, target in zip(about["states"], old, new, strict=True):
            binding.bind_ortvalue_input(link["input"], source)
            binding.bind_ortvalue_output(link["output"], target)
        bindings.append(binding)

    byte = choose(first[0, -1])
    for place in range(count):
        yield byte
        token.update_inplace(np.array([[byte]], dtype=np.int64))
        session.run_with_iobinding(bindings[place % 2])
        byte = choose(logits.numpy()[0, -1])


# ------------------------------------------------------------------------------------------------


def build(folder: Path) -> None:
    """Write the two graphs into ``folder``, judged against float64 as every build is."""
    command = [sys.executable, "-m", "linattn_export", "build", "--model", "bytes", "-m", METHOD]
    graphs = ["--entry", "prefill", "--entry", "step", "-f", "onnx"]
    sizes = ["--no-fixed", "--dynamic", "1:256", "--batch", "1", "--no-latency"]
    built = subprocess.run([*command, *graphs, *sizes, "-o", str(folder)], capture_output=True)
    if built.returncode:
        sys.stdout.buffer.write(built.stdout + built.stderr)
        raise SystemExit(built.returncode)


def eager(prompt: bytes, count: int, choose: Choose) -> list[int]:
    """What :func:`generate` gives, by the PyTorch module."""
    import torch
    from safetensors.torch import load_file

    from linattn_models.bytes import ByteModel, weights_path

    torch.set_num_threads(1)
    model = ByteModel(METHOD).eval()
    model.load_state_dict(load_file(weights_path(METHOD)))
    states = [torch.zeros(1, *spec.shape) for spec in model.state_specs()]
    tokens: list[int] = []
    with torch.no_grad():
        logits, states = model.advance(torch.tensor([list(prompt)]), None, states, False)
        for _ in range(count):
            tokens.append(choose(logits[0, -1].numpy()))
            logits, states = model.advance(torch.tensor([tokens[-1:]]), None, states, True)
    return tokens


def resident() -> float | None:
    """Megabytes of this process that are in memory; None where that is not known."""
    status = Path("/proc/self/status")
    if not status.is_file():
        return None
    lines = dict(line.split(":", 1) for line in status.read_text().splitlines())
    return int(lines["VmRSS"].split()[0]) / 1024


def main() -> None:
    """See the head of this file."""
    parser = argparse.ArgumentParser(description="Generate text from the step graph.")
    parser.add_argument("--prompt", default="Return a list of", help="default: %(default)r")
    parser.add_argument("--tokens", type=int, default=500, help="default: %(default)s")
    parser.add_argument("--temperature", type=float, default=0.0, help="default: %(default)s")
    parser.add_argument("--seed", type=int, default=0, help="default: %(default)s")
    parser.add_argument("--folder", type=Path, help="default: build one")
    parser.add_argument("--check", action="store_true", help="compare with eager PyTorch")
    asked = parser.parse_args()
    prompt = asked.prompt.encode()
    if not prompt or asked.tokens < 1:
        parser.error("--prompt needs a character, and --tokens must be at least 1")
    with tempfile.TemporaryDirectory() as temporary:
        folder = asked.folder or Path(temporary) / "bytes"
        if asked.folder is None:
            build(folder)
        tokens: list[int] = []
        memory: dict[int, float | None] = {}
        choose = chooser(asked.temperature, asked.seed)
        for token in generate(folder, prompt, asked.tokens, choose):
            if not tokens:
                start = time.perf_counter()
            tokens.append(token)
            if len(tokens) in (min(50, asked.tokens), asked.tokens):
                memory[len(tokens)] = resident()
        seconds = time.perf_counter() - start
    print((prompt + bytes(tokens)).decode(errors="replace"))
    print(f"\n{len(tokens)} tokens, {len(tokens) / seconds:.0f} tokens/s")
    for count, size in memory.items():
        if size is not None:
            print(f"resident memory after {count} tokens: {size:.1f} MB")
    if asked.check:
        expected = eager(prompt, asked.tokens, chooser(asked.temperature, asked.seed))
        differing = [place for place, token in enumerate(tokens) if token != expected[place]]
        if differing:
            raise SystemExit(f"token {differing[0]} differs from that of eager PyTorch")
        print(f"eager PyTorch gives the same {len(tokens)} tokens")


if __name__ == "__main__":
    main()
