"""What cannot be asked of entries and ONNX forms: each names the value, and what to do."""

import onnxruntime
import pytest

from conftest import CallCli
from linattn_export.options.onnx_forms import FORMS, chosen_forms, require_runtime
from linattn_runtime_checks.contract.errors import EnvironmentProblem, UsageError


@pytest.mark.parametrize(
    ("args", "code", "says"),
    [
        ("-m elu --entry step", 2, "layer with elu has no entry step: it carries no state"),
        ("-m elu --entry prefill", 2, "causal_elu, causal_relu"),
        (
            "-m causal_elu --model attention --entry step",
            2,
            "use --entry forward, or --model layer",
        ),
        ("-m gated_delta --entry decode", 2, "unknown entry: 'decode'"),
        ("-m gated_delta --model attention", 2, "use --model layer"),
        ("-m elu --onnx-form ms", 2, "method elu holds no recurrence"),
        ("-m kda --onnx-form fast", 2, "unknown ONNX form: 'fast'; known: portable, ms, std27"),
        ("-m kda --onnx-form auto", 2, "--onnx-form auto needs --min-ort"),
        ("-m kda --onnx-form ms --min-ort 1.20", 2, "loads from ONNX Runtime 1.25.1 on"),
        ("-m elu --opset 23 --min-ort 1.15", 2, "--opset 23 loads from ONNX Runtime 1.23 on"),
        ("-m kda --onnx-form auto --min-ort new", 2, "must be a release such as 1.25.1, got 'new'"),
        ("-m gated-delta", 2, "did you mean 'gated_delta'?"),
    ],
)
def test_refused(args: str, code: int, says: str, call_cli: CallCli, tmp_path: object) -> None:
    done = call_cli("linattn_export", "build", "-o", f"{tmp_path}/out", *args.split())
    assert done.returncode == code, done.stderr
    assert says in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("min_ort", "form"),
    [("1.15", "portable"), ("1.25", "portable"), ("1.25.1", "ms"), ("1.32", "ms"), ("2.0", "ms")],
)
def test_auto_goes_by_the_oldest_runtime(min_ort: str, form: str) -> None:
    assert chosen_forms(("auto",), min_ort) == (form,)


def test_a_form_named_twice_is_one() -> None:
    assert chosen_forms(("ms", "auto", "ms"), "1.32") == ("ms",)


@pytest.mark.parametrize(
    ("form", "installed"), [("ms", "1.25.0"), ("std27", "1.31.1"), ("std27", "1.25.1")]
)
def test_a_form_that_the_runtime_cannot_load(
    form: str, installed: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(onnxruntime, "__version__", installed)
    since = "1.25.1" if form == "ms" else "1.32"
    with pytest.raises(EnvironmentProblem, match=f"from ONNX Runtime {since} on, installed is"):
        require_runtime(("portable", form))
    require_runtime(("portable",))


def test_every_form_says_what_takes_it() -> None:
    for form in FORMS.values():
        assert all((form.node, form.browser, form.openvino, form.title))
    with pytest.raises(UsageError, match="must be a release"):
        chosen_forms(("auto",), "1")
