"""The bytes of a TorchScript file do not tell what its process scripted before."""

import io

import pytest
import torch
from torch import Tensor, nn

from linattn_export.formats.torchscript import _reproducible


class OfTwo(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.mix = nn.Bilinear(3, 3, 4)

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = self.mix(x, x)
        return found


@pytest.mark.filterwarnings("ignore:`torch.jit")
def test_what_was_scripted_before_gives_no_class_a_number() -> None:
    module, x = OfTwo(), torch.randn(2, 3)
    other = nn.Bilinear(3, 3, 4)
    torch.jit.trace(other, (x, x))  # type: ignore[no-untyped-call]  # takes the name of the class
    archive: bytes = torch.jit.script(module).save_to_buffer()  # type: ignore[no-untyped-call]
    assert b"___torch_mangle_" in archive
    kept = _reproducible(archive)
    assert b"___torch_mangle_" not in kept
    loaded = torch.jit.load(io.BytesIO(kept))  # type: ignore[no-untyped-call]
    assert torch.equal(loaded(x), module(x))
