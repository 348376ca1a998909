"""Further golden packs for a folder that was built before: ``linattn-check --live``."""

import random
from collections.abc import Sequence
from pathlib import Path
from typing import cast

import torch

from linattn import NAMES
from linattn_export.golden.writing import write_golden
from linattn_export.inputs.cases import live_cases
from linattn_export.options.variants import Entry, Range, Variant
from linattn_export.subjects.subject import TORCH_DTYPES, Subject
from linattn_export.subjects.traits import traits_of
from linattn_models import MODELS, ModelOptions
from linattn_runtime_checks.contract.errors import UsageError
from linattn_runtime_checks.contract.golden_pack import (
    MAX_TOKENS_PER_CASE,
    Reference,
    open_reference,
)
from linattn_runtime_checks.contract.manifest import Artifact, Manifest


def write_live_packs(
    folder: Path,
    manifest: Manifest,
    packs: Sequence[str],
    seeds: Sequence[int],
    place: Path,
    longest: int = MAX_TOKENS_PER_CASE,
) -> dict[str, list[Path]]:
    """Write more packs for each of ``packs``, one for each seed.

    Args:
        folder: of the manifest.
        manifest: its contents.
        packs: paths of golden packs, as the manifest has them.
        seeds: of inputs, lengths and batches.
        place: folder to write to.
        longest: no case has more tokens.

    Returns:
        The path of each pack to the new ones.

    Raises:
        UsageError: a pack does not say how to make its module again.
    """
    found: dict[str, list[Path]] = {}
    for number, path in enumerate(packs):
        artifacts = [artifact for artifact in manifest.artifacts if artifact.reference == path]
        if not artifacts:
            continue  # nothing to run it on
        with open_reference(folder / path) as reference:
            subject = subject_of(path, reference, artifacts, seeds[0])
        found[path] = []
        for seed in seeds:
            chance = random.Random(seed + number)
            plans = live_cases(subject.variants, subject.families, chance, longest)
            target = place / f"live-{number}-{seed}.safetensors"
            write_golden(subject.reseeded(seed), target, plans)
            found[path].append(target)
    return found


def subject_of(
    path: str, reference: Reference, artifacts: Sequence[Artifact], seed: int
) -> Subject:
    """The subject that a golden pack came from, with the weights that the pack holds.

    Raises:
        UsageError: the pack does not hold them, or this linattn does not know the model.
    """
    origin = reference.index.origin
    if origin is None:
        raise UsageError(
            f"{path} does not say how its module was made; build the folder again, with this "
            "release, to use `live`"
        )
    if origin.module is not None:
        raise UsageError(
            f"{path} is of a module of one's own ({origin.module}), which the folder does not "
            "hold; `live` can judge models of linattn only: build again with another `seed`"
        )
    if origin.model not in MODELS or origin.method not in NAMES:
        raise UsageError(
            f"{path} is of model {origin.model} with method {origin.method}, which this linattn "
            "does not have; use the release that built the folder"
        )
    model = MODELS[origin.model]
    options = ModelOptions(
        method=origin.method,
        method_options=origin.method_options,
        d_model=origin.d_model,
        heads=origin.heads,
    )
    with torch.random.fork_rng(devices=[]):
        module = model.build(options)
    weights = {name: torch.from_numpy(array) for name, array in reference.weights().items()}
    dtype = TORCH_DTYPES[origin.dtype]
    module = module.to(dtype)
    module.load_state_dict(weights)
    return Subject(
        model=model,
        method=origin.method,
        graph=cast(Entry, origin.entry),
        module=module.eval(),
        mask=origin.mask,
        dtype=dtype,
        variants=[_variant(artifact) for artifact in artifacts],
        seed=seed,
        origin=origin,
        traits=traits_of(origin.method, positions=model.positions),
    )


def _variant(artifact: Artifact) -> Variant:
    sequence, batch = (Range(low=low, high=high) for low, high in (
        artifact.axis("sequence").declared, artifact.axis("batch").declared
    ))  # fmt: skip
    return Variant(name=artifact.variant, sequence=sequence, batch=batch, form=artifact.form)
