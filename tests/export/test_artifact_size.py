"""An artifact is its weights and little more, whatever its lengths."""

from pathlib import Path

import pytest

from linattn import METHODS
from linattn_export.formats import FORMATS
from linattn_export.formats.base import Job
from linattn_export.options.request import BuildRequest
from linattn_export.subjects.making import make_subjects
from linattn_runtime_checks.contract import manifest


def test_artifacts_are_their_weights_and_little_more(small_folder: Path) -> None:
    for artifact in manifest.read(small_folder).artifacts:
        assert artifact.bytes <= artifact.weight_bytes + 64 * 1024, artifact.id


def test_a_fixed_linformer_carries_only_the_columns_it_uses(small_folder: Path) -> None:
    by_id = {artifact.id: artifact for artifact in manifest.read(small_folder).artifacts}
    dynamic, fixed = (by_id[f"layer/linformer/onnx/{v}"] for v in ("dynamic", "n16"))
    assert dynamic.parameters - fixed.parameters == 2 * 8 * (64 - 16)
    assert fixed.config == {"rank": 8, "max_length": 16}


# Whoever counts or weights what came before goes through chunks, which takes long to export.
@pytest.mark.parametrize(
    "method",
    [
        pytest.param(name, marks=pytest.mark.slow if record.capabilities.causal else ())
        for name, record in METHODS.items()
    ],
)
def test_a_long_fixed_length_stores_nothing_for_each_token(method: str, tmp_path: Path) -> None:
    """A row of ones for every token, folded into the file, made 512 KiB of it."""
    sizes = []
    for length in (512, 4096):
        request = BuildRequest(
            methods=(method,),
            lengths=(length,),
            dynamic="",
            batch="1",
            d_model=16,
            heads=2,
            entries=("forward",),
        )
        (subject,) = make_subjects(request)
        job = Job(subject=subject, variant=subject.variants[0], opset=18)
        path = tmp_path / f"{length}.onnx"
        FORMATS["onnx"].write(job, path)
        weights = sum(p.numel() * p.element_size() for p in job.entry.parameters())
        sizes.append(path.stat().st_size - weights)
    assert sizes[1] < sizes[0] + 64
