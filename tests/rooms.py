"""The rooms of the packages, in the order in which they may import each other."""

ROOMS: dict[str, tuple[str, ...]] = {
    "runtime_checks/linattn_runtime_checks": (
        "contract",
        "cost",
        "runtimes",
        "results",
        "blame",
        "checks",
        "faults",
        "processes",
        "latency",
        "judging",
        "report",
        "pytest_plugin",
    ),
    "export/linattn_export": (
        "options",
        "live_module",
        "inputs",
        "subjects",
        "capture",
        "formats",
        "golden",
        "own",
        "build",
    ),
}
"""A room imports itself and the rooms before it; what lies beside them imports any."""
