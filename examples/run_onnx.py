"""Runs an ONNX artifact with onnxruntime and numpy, inside the verified ranges and no further.

    python examples/run_onnx.py FOLDER [--artifact ID] [--inputs FILE.npz] [--outputs FILE.npz]
        [--batch 2] [--sequence 16] [--seed 0]

FOLDER is what ``linattn-export build`` wrote; --artifact chooses one of it, the first ONNX file
by default. Without --inputs it runs on random numbers, with masks that let everything through. It
exits 1 where the file's bytes are not those of the manifest, where the artifact did not pass, and
where an input is none that was verified. Copy what is above the line.
"""

import argparse
import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort
from numpy.typing import NDArray

Tensors = dict[str, NDArray[Any]]


class Refused(ValueError):
    """A file or an input that nobody vouches for; ``axis`` names the size that is out of range."""

    def __init__(self, message: str, axis: str | None = None) -> None:
        super().__init__(message)
        self.axis = axis


class VerifiedModel:
    """An ONNX artifact that is run only on what the manifest says was verified.

    Several threads may call one model at once: a session keeps nothing between two runs.

    Attributes:
        about: the artifact's entry in the manifest.
        ranges: the smallest and the largest verified size, for ``batch`` and ``sequence``.
    """

    def __init__(self, folder: Path, artifact: str | None = None, threads: int = 0) -> None:
        """Open ``artifact`` of ``folder``; ``threads`` of 0 leaves their number to ONNX Runtime.

        Raises:
            Refused: it is not there, did not pass, or is not the file that was verified.
        """
        path = folder / "linattn_manifest.json"
        if not path.is_file():
            raise Refused(f"{folder} holds no {path.name}; give what linattn-export build wrote")
        manifest = json.loads(path.read_text(encoding="utf-8"))
        if manifest["schema_version"].split(".")[0] != "1":
            raise Refused(
                f"manifest {manifest['schema_version']} is not 1.x, which this code reads"
            )
        known = {a["id"]: a for a in manifest["artifacts"] if a["format"] == "onnx"}
        name = artifact or next(iter(known), None)
        if name not in known:
            raise Refused(f"{folder} has no ONNX artifact {name!r}; it has: {', '.join(known)}")
        self.about: dict[str, Any] = known[name]
        if self.about["verdict"] != "PASS":
            raise Refused(f"{name} is {self.about['verdict']}, not PASS; linattn-check says why")
        content = (folder / self.about["path"]).read_bytes()
        digest = hashlib.sha256(content).hexdigest()
        if digest != self.about["sha256"]:
            raise Refused(
                f"{self.about['path']} has SHA-256 {digest}, the manifest says "
                f"{self.about['sha256']}; copy the folder again"
            )
        self.ranges = {axis["name"]: axis["verified"] for axis in self.about["axes"]}
        options = ort.SessionOptions()
        options.intra_op_num_threads = threads
        self._session = ort.InferenceSession(content, options, ["CPUExecutionProvider"])
        self._outputs = [output["name"] for output in self.about["outputs"]]

    def __call__(self, inputs: Mapping[str, NDArray[Any]]) -> Tensors:
        """The outputs by name.

        Raises:
            Refused: ``inputs`` is not what was verified.
        """
        self.check(inputs)
        return dict(zip(self._outputs, self._session.run(self._outputs, inputs), strict=True))

    def check(self, inputs: Mapping[str, NDArray[Any]]) -> None:
        """Compare names, dtypes and shapes with the manifest.

        Raises:
            Refused: with the value, what was verified, and what to do.
        """
        specs = self.about["inputs"]
        names = [spec["name"] for spec in specs]
        if sorted(inputs) != sorted(names):
            raise Refused(f"got inputs {sorted(inputs)}, expected {sorted(names)}")
        seen: dict[str, tuple[int, str]] = {}
        for spec in specs:
            name, tensor = spec["name"], inputs[spec["name"]]
            shape = list(tensor.shape)
            if str(tensor.dtype) != spec["dtype"]:
                raise Refused(
                    f"{name} is {tensor.dtype}, expected {spec['dtype']}; "
                    f"use {name}.astype({spec['dtype']!r})"
                )
            low, high = spec["values"] or (None, None)
            if low is not None and tensor.size and not low <= tensor.min() <= tensor.max() <= high:
                raise Refused(
                    f"{name} holds {tensor.min()} to {tensor.max()}, verified on {low} to {high}; "
                    "a negative token would silently stand for one from the end of the vocabulary"
                )
            if tensor.ndim != len(spec["axes"]):
                raise Refused(f"{name} has shape {shape}, expected {spec['axes']}")
            for axis, size in zip(spec["axes"], shape, strict=True):
                if isinstance(axis, str):
                    self.check_size(axis, size)
                    expected, where = seen.setdefault(axis, (size, name))
                    if size != expected:
                        raise Refused(f"{name} has shape {shape}: {axis} is {expected} in {where}")
                elif size != axis:
                    raise Refused(f"{name} has shape {shape}, expected {spec['axes']}")

    def check_size(self, axis: str, size: int) -> None:
        """Whether a ``batch`` or ``sequence`` of ``size`` was verified.

        Raises:
            Refused: it was not.
        """
        verified = self.ranges.get(axis)
        if verified is None:
            raise Refused(f"no size of {axis} was verified; run linattn-check on the folder", axis)
        low, high = verified
        if not low <= size <= high:
            flag = {"batch": "--batch", "sequence": "--dynamic"}[axis]
            raise Refused(
                f"{axis} is {size}, but {self.about['id']} was verified from {low} to {high}; "
                f"give another size, or build with {flag} {min(low, size)}:{max(high, size)}",
                axis,
            )


# ------------------------------------------------------------------------------------------------


def random_inputs(model: VerifiedModel, batch: int, sequence: int, seed: int) -> Tensors:
    """Normal numbers, integers from 0 to 9, and masks of ones."""
    random = np.random.default_rng(seed)
    inputs: Tensors = {}
    for spec in model.about["inputs"]:
        sizes = {"batch": batch, "sequence": sequence}
        shape = [sizes[axis] if isinstance(axis, str) else axis for axis in spec["axes"]]
        if spec["dtype"].startswith("float"):
            inputs[spec["name"]] = random.standard_normal(shape).astype(spec["dtype"])
        elif spec["name"] == "attention_mask":
            inputs[spec["name"]] = np.ones(shape, dtype=spec["dtype"])
        else:
            inputs[spec["name"]] = random.integers(0, 10, shape).astype(spec["dtype"])
    return inputs


def main() -> None:
    """See the head of this file."""
    parser = argparse.ArgumentParser(description="Run a verified ONNX artifact.")
    parser.add_argument("folder", type=Path, help="what linattn-export build wrote")
    parser.add_argument("--artifact", help="default: the first ONNX file of the folder")
    parser.add_argument("--inputs", type=Path, help=".npz of tensors; default: random numbers")
    parser.add_argument("--outputs", type=Path, help=".npz to write the outputs into")
    parser.add_argument("--batch", type=int, default=2, help="of random inputs (%(default)s)")
    parser.add_argument("--sequence", type=int, default=16, help="of random inputs (%(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="of random inputs (%(default)s)")
    asked = parser.parse_args()
    try:
        model = VerifiedModel(asked.folder, asked.artifact)
        if asked.inputs is None:
            inputs = random_inputs(model, asked.batch, asked.sequence, asked.seed)
        else:
            inputs = dict(np.load(asked.inputs))
        outputs = model(inputs)
    except Refused as error:
        raise SystemExit(f"refused: {error}") from None
    for name, tensor in outputs.items():
        print(f"{name} {list(tensor.shape)} {tensor.dtype}")
    verified = ", ".join(f"{axis} {low}:{high}" for axis, (low, high) in model.ranges.items())
    print(f"{model.about['id']}, verified for {verified}")
    if asked.outputs is not None:
        np.savez(asked.outputs, **outputs)  # type: ignore[arg-type]


if __name__ == "__main__":
    main()
