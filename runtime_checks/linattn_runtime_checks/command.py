"""What ``linattn-check`` does with its options."""

from collections.abc import Callable
from pathlib import Path

from linattn_runtime_checks.contract.errors import ExitCode, UsageError
from linattn_runtime_checks.contract.manifest import Manifest, read
from linattn_runtime_checks.judging.baseline import read_baseline
from linattn_runtime_checks.judging.folder import CheckRequest, check_folder
from linattn_runtime_checks.judging.policy import FailOn, parse_fail_on
from linattn_runtime_checks.judging.selftest import SelfTest
from linattn_runtime_checks.judging.selftest import self_test as run_self_test
from linattn_runtime_checks.options import Options
from linattn_runtime_checks.processes.child import Limits
from linattn_runtime_checks.report.html import render_html
from linattn_runtime_checks.report.html.needs import require_packages
from linattn_runtime_checks.report.junit import render as render_junit
from linattn_runtime_checks.report.selftest import show as show_self_test
from linattn_runtime_checks.report.summary import render as render_summary
from linattn_runtime_checks.report.terminal import show
from linattn_runtime_checks.results.report import Report


def check(options: Options) -> ExitCode:
    """Judge the folder and say what was found.

    Raises:
        UsageError: an option, the folder or a file to write cannot be used.
        EnvironmentProblem: a runtime or package that was asked for is missing.
    """
    policy = parse_fail_on(options.fail_on)
    limits = Limits(seconds=options.time_limit, gibibytes=options.memory_limit)
    if options.seed is not None and not options.live:
        raise UsageError("`seed` is of the inputs of `live`; add `live`, or leave out `seed`")
    if options.html is not None:
        require_packages()  # before minutes of work
    manifest = read(options.folder)
    baseline = None if options.baseline is None else read_baseline(options.baseline)
    report = _judged(options, manifest, limits, baseline)
    failed = policy.exit_code(report)
    show(report, options.folder, verbose=options.verbose, quiet=options.quiet)
    _tell_policy(report, failed, policy, options)
    _write(options.junit, "junit", lambda: render_junit(report))
    _write(options.summary, "summary", lambda: render_summary(report))
    _write(options.html, "html", lambda: render_html(report, manifest))
    if options.json:
        print(report.model_dump_json(indent=2))
    return failed


def _judged(
    options: Options, manifest: Manifest, limits: Limits, baseline: Report | None
) -> Report:
    def request(more: dict[str, list[Path]]) -> CheckRequest:
        return CheckRequest(
            runtimes=options.runtimes,
            latency=options.latency,
            quiet=options.quiet,
            limits=limits,
            isolate=options.isolate,
            more_packs=more,
            repro=options.repro,
            baseline=baseline,
        )

    if not options.live:
        return check_folder(options.folder, manifest, request({}))
    from linattn_runtime_checks.judging.live import live_packs

    with live_packs(options.folder, manifest, options.seed, quiet=options.quiet) as more:
        return check_folder(options.folder, manifest, request(more))


def self_test(options: Options) -> ExitCode:
    """Plant faults in copies of the folder's artifacts and say which were rejected.

    Raises:
        UsageError: the folder cannot be used.
        EnvironmentProblem: a runtime or the onnx package is missing.
    """
    manifest = read(options.folder)
    report = check_folder(
        options.folder,
        manifest,
        CheckRequest(runtimes=options.runtimes, latency=False, quiet=options.quiet),
    )
    if report.exit_code is not ExitCode.PASS:
        show(report, options.folder, verbose=False, quiet=True)
        raise UsageError(
            f"{options.folder} does not pass as it is ({report.verdict}); faults can be planted "
            "only in artifacts that are right"
        )
    found: SelfTest = run_self_test(options.folder, manifest, options.runtimes, quiet=options.quiet)
    show_self_test(found, options.folder, quiet=options.quiet)
    if options.json:
        print(found.model_dump_json(indent=2))
    return found.exit_code


def _write(path: Path | None, field: str, render: Callable[[], str]) -> None:
    if path is None:
        return
    try:
        path.write_text(render(), encoding="utf-8")
    except OSError as error:
        raise UsageError(f"`{field}` {path} cannot be written: {error.strerror}") from error


def _tell_policy(report: Report, failed: ExitCode, policy: FailOn, options: Options) -> None:
    """Say so where --fail-on makes the exit code another than the verdict's."""
    if failed is report.exit_code:
        return
    import sys

    print(
        f"exit     {int(failed)} ({failed.name}), by --fail-on {options.fail_on}; the verdict "
        f"itself is {report.verdict}",
        file=sys.stderr,
    )
