"""The subject of a module of one's own, for the time of a build."""

from collections.abc import Iterator
from contextlib import contextmanager

from torch import nn

from linattn.torch_internals import import_compiler
from linattn_export.formats import FORMATS
from linattn_export.live_module.borrow import borrowed
from linattn_export.live_module.kinds import parts_unwrapped, require_exportable, unwrapped
from linattn_export.live_module.signature import class_name
from linattn_export.options.request import BuildRequest
from linattn_export.own.lazy import initialise, make_room
from linattn_export.own.load import load_module
from linattn_export.own.spec import Inputs, read_spec
from linattn_export.own.specs import specs_of
from linattn_export.own.subject import make_subject
from linattn_export.subjects.subject import TORCH_DTYPES, Subject
from linattn_export.subjects.weights import load_weights
from linattn_runtime_checks.contract.errors import UsageError
from linattn_runtime_checks.processes.progress import interrupts_wait


@contextmanager
def subjects_of_module(request: BuildRequest) -> Iterator[list[Subject]]:
    """The subject that ``module`` and ``inputs`` describe, for the time of a build.

    Raises:
        UsageError: the factory, the SPEC or the weights cannot be used.
    """
    assert request.module is not None
    if request.inputs is None:
        raise UsageError(
            "`module` needs `inputs` SPEC, a TOML or JSON file that describes what the module takes"
        )
    inputs = read_spec(request.inputs)
    module = load_module(request.module, request.seed)
    name = request.module.partition(":")[2]
    with subjects_from(module, inputs, request, name, request.module) as subjects:
        yield subjects


@contextmanager
def subjects_from(
    module: nn.Module,
    inputs: Inputs,
    request: BuildRequest,
    name: str | None,
    source: str | None = None,
) -> Iterator[list[Subject]]:
    """The subject of ``module``, which is lent for the time of a build and given back as it was."""
    with interrupts_wait(every=True):
        import_compiler()  # the first operator that is watched would import it
    inside, around = unwrapped(module)
    label = class_name(inside)
    formats = request.formats or tuple(FORMATS)
    with parts_unwrapped(inside):
        if request.weights is None:
            require_exportable(inside, formats)
        else:
            make_room(inside)
        initialise(inside, inputs, specs_of(inputs, request), request.seed)
        if request.weights is not None:
            load_weights(inside, request.weights, f"the module of {source}")
            require_exportable(inside, formats)
        with borrowed(inside, TORCH_DTYPES[request.dtype]) as lent:
            where = f"{source or label}{around}"
            yield [make_subject(lent, inputs, request, name or label, where)]
