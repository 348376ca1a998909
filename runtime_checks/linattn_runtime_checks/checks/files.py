"""Every file is there, with the bytes that the manifest vouches for.

Files are compared before anything is loaded; see ``integrity``.
"""

from linattn_runtime_checks.checks.base import Check, When
from linattn_runtime_checks.contract.codes import Code

FILES = Check(
    name="files",
    title="every file is there, with the bytes that the manifest vouches for",
    codes=(Code.FILE_DAMAGED,),
    when=When.FOLDER,
)
