"""The text of ``repro.py``: it opens an artifact, runs it, and judges it as the verdict does.

The runtime's record gives the lines that open and run the file. The rest is the same for every
format, and needs nothing but numpy.
"""

import textwrap
from collections.abc import Mapping, Sequence
from string import Template

from linattn_runtime_checks.contract.verdict import INCONCLUSIVE_YARDSTICK, Error, K

_PROGRAM = Template('''\
"""$title

Run it with Python and the packages of versions.json. It exits with 1 while the fault is there,
with 0 once it is gone, and with 2 where the artifact cannot be run here, which says neither.
"""

import sys
import traceback
from pathlib import Path

import numpy as np

FILE = $file
INPUTS = $inputs
OUTPUTS = $outputs
# What rounding costs on these inputs, by output: relative to its worst row, and to all of it.
ROUNDING = $rounding
K = $k  # how many times that is allowed
MOST = $most  # where rounding costs more, nothing can be judged
here = Path(__file__).parent


def run(inputs):
    """The outputs of the artifact by name."""
$run
    return outputs


def fault_in(got, want, row, whole):
    """What is wrong with an output that rounding does not explain; None if nothing is."""
    if got.shape != want.shape:
        return f"shape {list(got.shape)}, expected {list(want.shape)}"
    if not np.isfinite(row):
        return None
    for name, test in (("NaN", np.isnan), ("+inf", np.isposinf), ("-inf", np.isneginf)):
        if (test(got) != test(want)).any():
            return f"{name} on one side only"
    floor = float(np.finfo(got.dtype if got.dtype == np.float16 else np.float32).smallest_normal)
    finite = np.isfinite(want)
    got, want = (np.where(finite, x, 0).astype(np.float64) for x in (got, want))
    got, want = (x.reshape(-1, x.shape[-1] if x.ndim else 1) for x in (got, want))
    size, distance = np.linalg.norm(want, axis=1), np.linalg.norm(got - want, axis=1)
    counted = size > 0
    if got[~counted].any():
        return "a row that is zero by definition is not"
    if max(row, whole) > MOST or not counted.any():
        return None
    size, distance = size[counted], distance[counted]
    worst = float((distance / np.maximum(size, floor)).max())
    of_all = float(np.linalg.norm(distance)) / max(float(np.linalg.norm(size)), floor)
    print(f"  relative error of the worst row {worst:.3e}, allowed {K * row:.3e}")
    print(f"  relative error of the whole     {of_all:.3e}, allowed {K * whole:.3e}")
    if worst > K * row or of_all > K * whole:
        return "wrong by more than rounding explains"
    return None


def main():
    """Whether the fault is there, as an exit code."""
    expected = dict(np.load(here / "expected.npz"))  # float64
    outputs = run(dict(np.load(here / "inputs.npz")))
    there = False
    for name, want in expected.items():
        print(name)
        fault = "is missing" if name not in outputs else fault_in(
            outputs[name], want, *ROUNDING[name]
        )
        print(f"  {fault or 'right'}")
        there = there or fault is not None
    print("the fault is there" if there else "the fault is gone")
    return int(there)


if __name__ == "__main__":
    try:
        code = main()
    except Exception:
        traceback.print_exc()
        print("the artifact cannot be run here, which says nothing about the fault")
        code = 2
    sys.exit(code)
''')


def program_text(
    title: str,
    *,
    file: str,
    inputs: Sequence[str],
    outputs: Sequence[str],
    rounding: Mapping[str, Error],
    run: str,
) -> str:
    """The program.

    Args:
        title: what is wrong, in one line.
        file: name of the artifact.
        inputs: their names in order.
        outputs: their names in order.
        rounding: what rounding costs on each output.
        run: ``Runtime.program``.
    """
    return _PROGRAM.substitute(
        title=title.replace("\\", "/").replace('"', "'"),
        file=repr(file),
        inputs=repr(list(inputs)),
        outputs=repr(list(outputs)),
        rounding=_rounding(rounding),
        k=repr(K),
        most=repr(INCONCLUSIVE_YARDSTICK),
        run=textwrap.indent(run.strip("\n"), "    "),
    )


def _rounding(rounding: Mapping[str, Error]) -> str:
    """As Python, which has no word for infinity."""
    lines = [
        f"    {name!r}: ({_number(error.row)}, {_number(error.whole)}),\n"
        for name, error in rounding.items()
    ]
    return "{\n" + "".join(lines) + "}"


def _number(number: float) -> str:
    return repr(number) if number < float("inf") else 'float("inf")'
