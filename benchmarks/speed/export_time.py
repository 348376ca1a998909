"""Seconds for each checked artifact of a build against optimum-cli's export of one tiny model.

    python -m benchmarks.speed.export_time [--optimum-cli PATH] [--quick] [--output FOLDER]
        [--budget SECONDS]

Both are whole commands, each in its own environment. optimum-onnx is not among the extras of this
project, since its versions of transformers and torch are its own affair:

    python3 -m venv peer && peer/bin/pip install optimum-onnx onnxruntime torch==2.13.0

optimum-cli exports a BERT of random weights from a folder on the disk, told to ask no hub, and
validates what it wrote as it does by default. A build counts only if all its artifacts passed.
"""

import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from safetensors.numpy import save_file

from benchmarks.speed import page
from benchmarks.speed.load import Watch
from benchmarks.speed.ratios import Goal, ratio
from benchmarks.speed.timing import interleave, seconds
from linattn_runtime_checks.contract.errors import ExitCode

GOAL = Goal(value=0.25)
LAYERS, WIDTH, HEADS, INNER, WORDS, POSITIONS = 2, 64, 2, 256, 100, 512
PACKAGES = ("optimum", "optimum-onnx", "transformers", "torch", "onnx", "onnxruntime", "accelerate")

_VERSIONS = """
import importlib.metadata, json, sys
found = {}
for name in sys.argv[1:]:
    try:
        found[name] = importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        pass
print(json.dumps(found))
"""


class CommandError(Exception):
    """A command that is timed does not do its work."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Build:
    """A build by its options, and what its time is held against."""

    options: tuple[str, ...]
    goal: Goal | None

    @property
    def stated(self) -> str:
        """Its options as they are typed."""
        return " ".join(self.options) or "the default"


NINE = Build(options=("-m", "elu", "-n", "128", "-n", "512"), goal=GOAL)
ONE = Build(options=("-m", "elu", "-f", "onnx", "--no-fixed"), goal=None)
DEFAULT = Build(options=(), goal=GOAL)
SMALL = Build(
    options=("-m", "elu", "-f", "onnx", "-n", "16", "--dynamic", "1:32", "--batch", "1:2"),
    goal=GOAL,
)


def write_bert(folder: Path) -> None:
    """Write a BERT of random weights with its configuration and tokenizer."""
    generator = np.random.default_rng(0)
    weights: dict[str, np.ndarray[tuple[int, ...], np.dtype[np.float32]]] = {}

    def draw(name: str, *shape: int) -> None:
        weights[f"{name}.weight"] = generator.normal(0, 0.02, shape).astype(np.float32)

    def linear(name: str, fan_in: int, fan_out: int) -> None:
        draw(name, fan_out, fan_in)
        weights[f"{name}.bias"] = np.zeros(fan_out, np.float32)

    def norm(name: str) -> None:
        weights[f"{name}.weight"] = np.ones(WIDTH, np.float32)
        weights[f"{name}.bias"] = np.zeros(WIDTH, np.float32)

    for name, count in (("word", WORDS), ("position", POSITIONS), ("token_type", 2)):
        draw(f"embeddings.{name}_embeddings", count, WIDTH)
    norm("embeddings.LayerNorm")
    for number in range(LAYERS):
        layer = f"encoder.layer.{number}"
        for name in ("query", "key", "value"):
            linear(f"{layer}.attention.self.{name}", WIDTH, WIDTH)
        linear(f"{layer}.attention.output.dense", WIDTH, WIDTH)
        norm(f"{layer}.attention.output.LayerNorm")
        linear(f"{layer}.intermediate.dense", WIDTH, INNER)
        linear(f"{layer}.output.dense", INNER, WIDTH)
        norm(f"{layer}.output.LayerNorm")
    linear("pooler.dense", WIDTH, WIDTH)

    folder.mkdir(parents=True)
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    words = [*special, *(f"word{number}" for number in range(WORDS - len(special)))]
    (folder / "vocab.txt").write_text("\n".join(words) + "\n", encoding="utf-8")
    tokenizer = {"tokenizer_class": "BertTokenizer", "model_max_length": POSITIONS}
    config = {
        "architectures": ["BertModel"],
        "model_type": "bert",
        "hidden_size": WIDTH,
        "num_hidden_layers": LAYERS,
        "num_attention_heads": HEADS,
        "intermediate_size": INNER,
        "vocab_size": WORDS,
        "max_position_embeddings": POSITIONS,
        "type_vocab_size": 2,
    }
    for name, content in (("config", config), ("tokenizer_config", tokenizer)):
        (folder / f"{name}.json").write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


def call(command: Sequence[str]) -> None:
    """Run a command to its end.

    Raises:
        CommandError: it fails.
    """
    done = subprocess.run(
        command, capture_output=True, text=True, env=os.environ | {"HF_HUB_OFFLINE": "1"}
    )
    if done.returncode:
        last = (done.stderr or done.stdout).strip().splitlines()[-1:]
        raise CommandError(f"{Path(command[0]).name} ends with {done.returncode}: {''.join(last)}")


class Optimum:
    """optimum-cli, and the model that it exports."""

    def __init__(self, command: str, folder: Path) -> None:
        self.command, self.model, self.out = command, folder / "bert", folder / "optimum"
        write_bert(self.model)

    def export(self) -> None:
        """Export and validate, as a user does who leaves the defaults alone.

        Raises:
            CommandError: it fails, or nothing is there afterwards.
        """
        model = ("--model", str(self.model), "--task", "feature-extraction")
        call([self.command, "export", "onnx", *model, str(self.out)])
        if not (self.out / "model.onnx").is_file():
            raise CommandError("optimum-cli writes no model.onnx")

    def versions(self) -> dict[str, str]:
        """Of the packages beside it; none where its Python is not beside it."""
        python = Path(self.command).resolve().parent / "python"
        if not python.exists():
            return {}
        done = subprocess.run(
            [str(python), "-c", _VERSIONS, *PACKAGES], capture_output=True, text=True, check=True
        )
        found: dict[str, str] = json.loads(done.stdout)
        return found


class Ours:
    """A build by the command of this environment."""

    def __init__(self, build: Build, folder: Path) -> None:
        self.build, self.out = build, folder / f"build-{'-'.join(build.options)}".replace(":", "-")

    def run(self) -> None:
        """Build and check, without latency.

        Raises:
            CommandError: not every artifact passes.
        """
        command = str(Path(sys.executable).parent / "linattn-export")
        call([command, "build", *self.build.options, "--no-latency", "-q", "-o", str(self.out)])

    def counts(self) -> tuple[int, int]:
        """Artifacts of the last run, all of which passed, and outputs that were compared."""
        manifest = json.loads((self.out / "linattn_manifest.json").read_text(encoding="utf-8"))
        artifacts = manifest["artifacts"]
        return len(artifacts), sum(c["cases"] for a in artifacts for c in a["checks"])

    def row(self, times: Sequence[float], optimum: Sequence[float]) -> page.Row:
        """One line of the table, from the seconds of whole commands."""
        artifacts, compared = self.counts()
        each = [taken / artifacts for taken in times]
        return page.ratio_row(
            {"build": self.build.stated, "artifacts": artifacts, "outputs compared": compared},
            {
                "rounds": len(times),
                "build s": statistics.median(times),
                "s an artifact": statistics.median(each),
                "optimum-cli s": statistics.median(optimum),
            },
            ratio(each, optimum),
            self.build.goal,
        )


def measure(
    folder: Path, optimum: Optimum, builds: Sequence[Build], budget_s: float, rounds: int | None
) -> list[page.Row]:
    """Builds that take turns with optimum-cli."""
    ours = {build.stated: Ours(build, folder) for build in builds}
    calls = {"optimum": optimum.export} | {name: build.run for name, build in ours.items()}
    times = interleave(calls, budget_s, rounds)
    return [build.row(times[name], times["optimum"]) for name, build in ours.items()]


def measure_once(folder: Path, optimum: Optimum, build: Build) -> page.Row:
    """A build that takes minutes, between two runs of optimum-cli whose mean counts."""
    ours = Ours(build, folder)
    before, taken, after = map(seconds, (optimum.export, ours.run, optimum.export))
    return ours.row([taken], [(before + after) / 2])


def main() -> None:
    """Measure and write; exit 4 where optimum-cli is not found, 3 where a command fails."""
    options = page.options_of(
        __doc__,
        60,
        lambda parser: parser.add_argument("--optimum-cli", metavar="PATH", default="optimum-cli"),
    )
    command = shutil.which(options.optimum_cli)
    if command is None:
        print(
            f"{options.optimum_cli} is not found: install optimum-onnx in an environment of its "
            "own and name the command by --optimum-cli PATH",
            file=sys.stderr,
        )
        sys.exit(ExitCode.ENVIRONMENT)
    watch = Watch()
    try:
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            optimum = Optimum(str(Path(command).absolute()), folder)
            if options.quick:
                rows = measure(folder, optimum, [SMALL], 0, 1)
            else:
                rows = measure(folder, optimum, [NINE, ONE], options.budget, None)
                rows.append(measure_once(folder, optimum, DEFAULT))
            load = watch.stated()
            versions = optimum.versions()
    except CommandError as error:
        print(error, file=sys.stderr)
        sys.exit(ExitCode.EXPORT)
    theirs = ", ".join(f"{name} {version}" for name, version in versions.items())
    page.write(
        options.output,
        "export_time",
        title="Seconds for each checked artifact against optimum-cli",
        text="Wall time of `linattn-export build`, without latency, divided by its artifacts, all "
        "of which passed, over the wall time of `optimum-cli export onnx`, validation included. "
        "Whole commands from start to end take turns; a ratio is the median over rounds, with its "
        "95 % interval by bootstrap. One round has no interval.",
        settings=f"optimum-cli exports a BERT of random weights from the disk: {LAYERS} layers, "
        f"width {WIDTH}, {HEADS} heads, {WORDS} words; its environment: {theirs or 'not known'}",
        load=load,
        rows=rows,
        notes=[
            "optimum-cli writes one ONNX file and compares its outputs for one batch; a build "
            "writes several files and shares the start of Python and PyTorch among them. The row "
            "of a single artifact shares nothing.",
            "HF_HUB_OFFLINE=1 and `--task feature-extraction`, without which optimum-cli refuses "
            "a folder on the disk.",
        ],
    )


if __name__ == "__main__":
    main()
