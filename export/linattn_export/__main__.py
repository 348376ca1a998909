"""``python -m linattn_export``."""

from linattn_export.cli import main

main()
