"""What the page says of each model, and within it of each method."""

from collections.abc import Iterator
from dataclasses import dataclass, field

from linattn_runtime_checks.cost.exponent import sentence
from linattn_runtime_checks.report.html.curves import (
    BASELINE,
    Curve,
    Subject,
    latency_curves,
    latency_runtimes,
    memory_curves,
    memory_runtimes,
)
from linattn_runtime_checks.report.html.figures import bars_svg, growth_svg
from linattn_runtime_checks.report.html.parity_map import ParityMap, parity_map
from linattn_runtime_checks.report.html.verdict import State, state_of
from linattn_runtime_checks.results.report import ArtifactResult, Report


@dataclass(frozen=True, slots=True, kw_only=True)
class Plot:
    """A drawn figure and what is said below it."""

    title: str
    svg: str
    caption: str


@dataclass(frozen=True, slots=True, kw_only=True)
class MethodSection:
    """One method of one model."""

    anchor: str
    method: str
    state: State
    status: str
    parity: ParityMap | None
    plots: list[Plot]


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelSection:
    """One model: all methods beside each other, then one by one."""

    anchor: str
    model: str
    plots: list[Plot]
    methods: list[MethodSection] = field(default_factory=list)


def model_sections(report: Report) -> list[ModelSection]:
    """The sections of all models, in the order of the report."""
    by_model: dict[str, dict[str, list[ArtifactResult]]] = {}
    for artifact in report.artifacts:
        by_model.setdefault(artifact.model, {}).setdefault(artifact.method, []).append(artifact)
    sections = []
    for number, (model, methods) in enumerate(by_model.items()):
        anchor = f"model-{number}"
        overview = Subject(model=model)
        plots = list(_latency_plots(report, overview, anchor)) if len(methods) > 1 else []
        section = ModelSection(anchor=anchor, model=model, plots=plots)
        for index, (method, artifacts) in enumerate(methods.items()):
            section.methods.append(
                _method_section(report, model, method, artifacts, f"{anchor}-{index}")
            )
        sections.append(section)
    return sections


def _method_section(
    report: Report, model: str, method: str, artifacts: list[ArtifactResult], anchor: str
) -> MethodSection:
    subject = Subject(model=model, method=method)
    states = [
        "unsure" if not a.judged and state_of(a.exit_code) != "bad" else state_of(a.exit_code)
        for a in artifacts
    ]
    passed = states.count("good")
    state: State = "bad" if "bad" in states else "unsure" if not passed else "good"
    status = f"{passed} of {len(artifacts)} pass"
    if failed := states.count("bad"):
        status += f", {failed} fail"
    if unjudged := states.count("unsure"):
        status += f", {unjudged} not judged"
    plots = [
        *_latency_plots(report, subject, anchor),
        *_memory_plots(report, subject, anchor),
        _size_plot(artifacts, method, anchor),
    ]
    return MethodSection(
        anchor=anchor, method=method, state=state, status=status,
        parity=parity_map(artifacts), plots=plots,
    )  # fmt: skip


def _latency_plots(report: Report, subject: Subject, anchor: str) -> Iterator[Plot]:
    if report.latency is None:
        return
    for index, runtime in enumerate(latency_runtimes(report.latency, subject.model)):
        curves = latency_curves(report.latency, subject, runtime)
        # All methods beside each other are more than one; its own section shows that one.
        if not curves or (subject.method is None and len({c.method for c in curves}) == 1):
            continue
        key = f"{runtime}/{subject.model}/{subject.method}"
        crossover = report.latency.crossovers.get(key)
        caption = _growth(curves)
        if key in report.latency.crossovers:
            caption += " " + _crossover_text(subject.method or "", crossover)
        title = f"Latency on {runtime}"
        label = f"{title}, {subject.method or 'all methods'}, against the length. {caption}"
        svg = growth_svg(f"{anchor}-latency-{index}", label, curves, unit="ms",
                         methods=_methods(report, subject.model), crossover=crossover)  # fmt: skip
        yield Plot(title=title, svg=svg, caption=caption)


def _memory_plots(report: Report, subject: Subject, anchor: str) -> Iterator[Plot]:
    for index, runtime in enumerate(memory_runtimes(report.artifacts, subject.model)):
        curves = memory_curves(report.artifacts, subject, runtime)
        if not curves:
            continue
        caption = f"Beyond the loaded session. {_growth(curves)}"
        title = f"Peak memory on {runtime}"
        label = f"{title}, {subject.method}, against the length. {caption}"
        svg = growth_svg(f"{anchor}-memory-{index}", label, curves, unit="bytes",
                         methods=_methods(report, subject.model))  # fmt: skip
        yield Plot(title=title, svg=svg, caption=caption)


def _methods(report: Report, model: str) -> list[str]:
    """Of ``model``, in the order of the report; what was timed beside artifacts comes last."""
    timed = report.latency.results if report.latency is not None else []
    named = [(a.model, a.method) for a in report.artifacts] + [(r.model, r.method) for r in timed]
    return list(dict.fromkeys(method for of, method in named if of == model))


def _size_plot(artifacts: list[ArtifactResult], method: str, anchor: str) -> Plot:
    bars = [(f"{artifact.format}/{artifact.variant}", artifact.bytes) for artifact in artifacts]
    caption = f"{artifacts[0].parameters:,} parameters."
    label = f"Sizes of the files of {method}: " + ", ".join(f"{n} {b} bytes" for n, b in bars)
    return Plot(title="Size of the files", svg=bars_svg(f"{anchor}-size", label, bars),
                caption=caption)  # fmt: skip


def _growth(curves: list[Curve]) -> str:
    """How the curves grow, in words; the interval says how far to trust it."""
    told = [f"{c.label}{sentence(c.exponent)}" for c in curves if c.exponent]
    if told:
        return "; ".join(told) + "."
    lengths = {point.length for curve in curves for point in curve.points}
    if len(lengths) < 3:
        noun = "length" if len(lengths) == 1 else "lengths"
        return f"{len(lengths)} {noun} measured: too few to fit a growth."
    return "No growth was fitted."


def _crossover_text(method: str, crossover: int | None) -> str:
    if crossover is None:
        return f"{method} is not clearly faster than {BASELINE} within the lengths measured."
    return f"{method} is faster than {BASELINE} from {crossover} tokens."
