"""What the export saw of the module that users of the file must know.

The manifest carries these notes, and every report repeats them.
"""

from linattn_runtime_checks.checks.base import Check, When
from linattn_runtime_checks.contract.codes import Code

CAPTURE = Check(
    name="capture",
    title="what the export saw of the module that users of the file must know",
    codes=(Code.INPUT_WRITTEN, Code.GRAPH_UNROLLED),
    shares=(Code.OUTSIDE_DOMAIN,),
    when=When.ARTIFACT,
)
