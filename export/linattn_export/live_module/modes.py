"""Eval mode, for modules that know no modes too."""

from torch import nn


def evaluated(module: nn.Module) -> nn.Module:
    """``module`` in eval mode; what torch.export captured refuses to be put into one."""
    try:
        return module.eval()
    except NotImplementedError:
        for part in module.modules():
            part.training = False
        return module
