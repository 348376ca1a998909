"""Classes are named alike in the manifest, the golden pack and the file.

Applications read the manifest or the file's metadata; the golden pack was scored by the names.
"""

import json

from linattn_runtime_checks.checks.base import Check, Context, Problem
from linattn_runtime_checks.contract.codes import Code


def _run(context: Context) -> list[Problem]:
    artifact, task = context.artifact, context.reference.index.task
    named = {"the golden pack": json.dumps(task.classes)} if task is not None else {}
    if context.runtime.declares_labels:
        named["the file"] = context.session.labels() or "[]"
    for what, found in named.items():
        if found != json.dumps(artifact.labels):
            message = (
                f"classes are {json.dumps(artifact.labels)} in the manifest, {found} in {what}"
            )
            return [Problem(code=Code.LABELS_DIFFER, message=message)]
    return []


LABELS = Check(
    name="labels",
    title="classes are named alike in the manifest, the golden pack and the file",
    codes=(Code.LABELS_DIFFER,),
    run=_run,
)
