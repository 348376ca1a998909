"""``python -m linattn_runtime_checks``."""

from linattn_runtime_checks.cli import main

main()
