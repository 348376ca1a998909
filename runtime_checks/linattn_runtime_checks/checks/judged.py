"""A runtime compared the artifact.

Known when every runtime has had its turn.
"""

from linattn_runtime_checks.checks.base import Check, When
from linattn_runtime_checks.contract.codes import Code

JUDGED = Check(
    name="judged",
    title="a runtime compared the artifact",
    codes=(Code.NOT_JUDGED,),
    when=When.ARTIFACT,
)
