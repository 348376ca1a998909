"""timm's LiteMLA, on a torch build for which torchvision's compiled operators do not load."""

from typing import Any

import torch


def lite_mla() -> Any:
    """The class.

    torchvision describes two operators to torch whether or not they loaded; they only have to
    exist.
    """
    try:
        from timm.models.efficientvit_mit import LiteMLA
    except RuntimeError:
        for operator in ("nms", "qnms"):
            torch.library.define(
                f"torchvision::{operator}",
                "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
            )
        from timm.models.efficientvit_mit import LiteMLA
    return LiteMLA
