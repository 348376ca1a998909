"""``linattn-export``. Heavy imports are inside the functions: ``--help`` must be instant."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from linattn_runtime_checks.console import run

app = typer.Typer(
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    no_args_is_help=True,
    help="Export linear-attention models to ONNX, TorchScript and torch.export, with proof.",
)

Names = list[str] | None


@app.command()
def build(
    output: Annotated[
        Path, typer.Option("--output", "-o", metavar="DIR", help="Folder to write.")
    ] = Path("artifacts"),
    method: Annotated[
        Names,
        typer.Option("--method", "-m", metavar="NAME", help="Method (repeat) [six: list]."),
    ] = None,
    model: Annotated[
        Names, typer.Option("--model", metavar="NAME", help="Model (repeat) [layer].")
    ] = None,
    format: Annotated[
        Names, typer.Option("--format", "-f", metavar="NAME", help="Format (repeat) [all].")
    ] = None,
    seq_len: Annotated[
        Names,
        typer.Option("--seq-len", "-n", metavar="N", help="Fixed length (repeat) [128 512 1024]."),
    ] = None,
    no_fixed: Annotated[bool, typer.Option("--no-fixed", help="No fixed variants.")] = False,
    dynamic: Annotated[
        str | None,
        typer.Option(metavar="MIN:MAX", help="Lengths of the dynamic variant [1:4096]."),
    ] = None,
    no_dynamic: Annotated[bool, typer.Option("--no-dynamic", help="No dynamic variant.")] = False,
    batch: Annotated[
        str | None,
        typer.Option(metavar="MIN:MAX", help="Batch sizes, or one fixed size [1:64]."),
    ] = None,
    mask: Annotated[
        bool | None,
        typer.Option("--mask/--no-mask", help="attention_mask as an input [no; langid: yes]."),
    ] = None,
    d_model: Annotated[str | None, typer.Option(metavar="M", help="Model width [256].")] = None,
    heads: Annotated[str | None, typer.Option(metavar="H", help="Heads [4].")] = None,
    option: Annotated[
        Names,
        typer.Option(metavar="METHOD.FIELD=VALUE", help="A method's option (repeat)."),
    ] = None,
    module: Annotated[
        str | None,
        typer.Option(metavar="PACKAGE.MODULE:FACTORY", help="A module of one's own, instead."),
    ] = None,
    inputs: Annotated[
        Path | None,
        typer.Option(metavar="SPEC", help="What --module takes: a TOML or JSON file."),
    ] = None,
    weights: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="safetensors weights [fresh ones from the seed]."),
    ] = None,
    seed: Annotated[str, typer.Option(metavar="N", help="Of weights and inputs.")] = "0",
    opset: Annotated[str, typer.Option(metavar="N", help="ONNX opset, 17 to 23.")] = "18",
    dtype: Annotated[str, typer.Option(metavar="NAME", help="fp32 or fp16.")] = "fp32",
    entry: Annotated[
        Names,
        typer.Option(
            metavar="NAME", help="forward, prefill or step (repeat) [all that the method has]."
        ),
    ] = None,
    onnx_form: Annotated[
        Names,
        typer.Option(
            metavar="NAME", help="portable, ms, std27 or auto (repeat) [portable]: recurrence."
        ),
    ] = None,
    min_ort: Annotated[
        str | None,
        typer.Option(metavar="RELEASE", help="Oldest ONNX Runtime that must load the files."),
    ] = None,
    no_check: Annotated[bool, typer.Option("--no-check", help="Do not judge (exit 5).")] = False,
    no_latency: Annotated[bool, typer.Option("--no-latency", help="Measure no latency.")] = False,
    runtime: Annotated[
        Names,
        typer.Option("--runtime", metavar="NAME", help="Judge on this runtime (repeat) [all]."),
    ] = None,
    memory_limit: Annotated[
        float | None,
        typer.Option(metavar="GIB", help="What the build, or a child, may take [what is free]."),
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print the report as JSON.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print the verdict only.")] = False,
    verbose: Annotated[
        bool,
        typer.Option("--verbose", "-v", help="Print memory and fixed variants' latencies too."),
    ] = False,
) -> None:
    """Write a folder of artifacts, judge them against float64 and report on them.

    Exit codes: 0 all that was asked for is written and verified, 1 numbers, shapes or axes differ,
    2 usage, 3 an artifact cannot be made or loaded, 4 a runtime or package is missing, 5 written
    but not compared, 70 our bug. Names are listed by 'linattn-export list'.
    """
    from linattn_export.options.request import BuildRequest, parse_options
    from linattn_export.options.variants import parse_range, positive, whole
    from linattn_runtime_checks.contract.errors import UsageError

    if no_fixed and seq_len:
        raise UsageError("--no-fixed and -n/--seq-len exclude each other; leave one out")
    if no_dynamic and dynamic:
        raise UsageError("--no-dynamic and --dynamic exclude each other; leave one out")
    if no_check and runtime:
        raise UsageError("--no-check and --runtime exclude each other; leave one out")
    if module is not None:
        given = {
            "--method": method, "--model": model, "--dynamic": dynamic, "--batch": batch,
            "--mask/--no-mask": mask, "--d-model": d_model, "--heads": heads, "--option": option,
            "--entry": entry,
        }  # fmt: skip
        refused = [flag for flag, value in given.items() if value is not None]
        if refused:
            raise UsageError(
                f"--module and {refused[0]} exclude each other: the module is what its factory "
                "makes, and its sizes and masks are described by --inputs SPEC"
            )
    elif inputs is not None:
        raise UsageError("--inputs describes the module of --module; name one, or leave it out")
    if dynamic is not None:
        parse_range("--dynamic", dynamic, fixed=False)
    lengths = tuple(positive("-n/--seq-len", text) for text in seq_len) if seq_len else None
    request = BuildRequest(
        output=output,
        methods=tuple(method or ()),
        models=tuple(model or ("layer",)),
        formats=tuple(format or ()),
        lengths=() if no_fixed else lengths,
        dynamic="" if no_dynamic else dynamic,
        batch=batch,
        mask=mask,
        d_model=None if d_model is None else positive("--d-model", d_model),
        heads=None if heads is None else positive("--heads", heads),
        options=parse_options(option or []),
        module=module,
        inputs=inputs,
        weights=weights,
        seed=whole("--seed", seed),
        opset=whole("--opset", opset),
        dtype=dtype,
        entries=tuple(entry or ()),
        onnx_forms=tuple(onnx_form or ("portable",)),
        min_ort=min_ort,
        check=not no_check,
        latency=not no_latency,
        runtimes=tuple(runtime or ()),
        quiet=quiet,
        memory_limit=memory_limit,
        verbose=verbose,
    )
    _require_torch()
    from linattn_export.build.pipeline import build as build_folder
    from linattn_runtime_checks.report.terminal import show

    report = build_folder(request)
    show(report, output, verbose=verbose, quiet=quiet)
    if json:
        print(report.model_dump_json(indent=2))
    sys.exit(int(report.exit_code))


@app.command("list")
def list_command(
    json: Annotated[bool, typer.Option("--json", help="Print as JSON.")] = False,
) -> None:
    """List methods, models, formats and runtimes, and why one is unavailable."""
    _require_torch()
    from linattn_export.listing import show_list

    show_list(json=json)


@app.command()
def inspect(
    path: Annotated[Path, typer.Argument(metavar="FILE|DIR", help="An artifact or a folder.")],
    json: Annotated[bool, typer.Option("--json", help="Print as JSON.")] = False,
) -> None:
    """Print inputs, outputs, axes, opsets, IR, operators and metadata of an artifact."""
    from linattn_export.inspection import show_inspection

    show_inspection(path, json=json)


def _require_torch() -> None:
    from importlib.util import find_spec

    from linattn_runtime_checks.contract.errors import EnvironmentProblem

    if find_spec("torch") is None:
        raise EnvironmentProblem("torch is not installed; run: pip install 'linattn[export]'")


def main() -> None:
    """The console script."""
    run("linattn-export", app)
