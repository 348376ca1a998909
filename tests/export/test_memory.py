"""Memory is planned: attention in pieces, long cases stored in part, builds that do not fit."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from conftest import BuildOnce, CallCli
from linattn import METHODS, MultiHeadAttention, pieces
from linattn.pieces import HeadsInTurn, heads_at_once, in_pieces, with_heads_in_turn
from linattn_export.build import estimate
from linattn_export.build.live_bytes import LiveBytes
from linattn_export.build.pipeline import build
from linattn_export.golden import long_cases
from linattn_export.options.request import BuildRequest
from linattn_export.subjects.making import make_subjects
from linattn_runtime_checks.checks.parity import run_cases
from linattn_runtime_checks.contract import manifest
from linattn_runtime_checks.contract.codes import Code
from linattn_runtime_checks.contract.errors import UsageError
from linattn_runtime_checks.contract.golden_pack import Case, open_reference
from linattn_runtime_checks.contract.verdict import error_of
from linattn_runtime_checks.latency.turns import TurnTaker
from linattn_runtime_checks.processes.turns import Times, Turn
from linattn_runtime_checks.results import environment
from linattn_runtime_checks.runtimes import RUNTIMES
from linattn_runtime_checks.runtimes.base import Session, SessionOptions, Tensors

N, WIDTH, HEADS = 67, 16, 4
SOFTMAX = "-m softmax -f onnx --d-model 512 --heads 8 --no-fixed --dynamic 1:16384"


def layer_of(method: str) -> MultiHeadAttention:
    torch.manual_seed(0)
    options: dict[str, Any] = {"max_length": N, "rank": 8} if method == "linformer" else {}
    return MultiHeadAttention(WIDTH, HEADS, method=method, **options).eval()


@pytest.fixture
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pieces as small as a few rows, so that short sequences are cut as long ones are."""
    monkeypatch.setattr(pieces, "LONG", 8)
    monkeypatch.setattr(pieces, "BLOCK_SCORES", 4 * N * 8)


def held(call: Callable[[], object]) -> int:
    live = LiveBytes()
    with torch.no_grad(), live:
        call()
    return live.peak


@pytest.mark.usefixtures("small_pieces")
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("masked", [False, True])
def test_pieces_give_the_numbers_of_the_whole(method: str, masked: bool) -> None:
    """In float64 up to its rounding; in float32 no row loses more than it does in the whole run."""
    single, x = layer_of(method), torch.randn(2, N, WIDTH)
    mask = torch.arange(N).expand(2, N) < torch.tensor([[N], [N // 2]]) if masked else None
    double = layer_of(method).double()
    with torch.no_grad():
        truth, whole = double(x.double(), mask), single(x, mask)
        with in_pieces(double), in_pieces(single):
            cut, cut_single = double(x.double(), mask), single(x, mask)
    torch.testing.assert_close(cut, truth, rtol=1e-12, atol=1e-14)
    lost, usual = (error_of(y.numpy(), truth.numpy()) for y in (cut_single, whole))
    assert lost.row <= 2 * usual.row + 1e-7
    assert "forward" not in double.__dict__, "the module is as it was"


def test_a_head_that_is_left_out_of_the_pieces_is_seen(
    monkeypatch: pytest.MonkeyPatch, small_pieces: None
) -> None:
    projected = pieces._projected
    spoilt = lambda part, x, rows: projected(part, x, slice(rows.start - 1, rows.stop - 1))  # noqa: E731
    monkeypatch.setattr(
        pieces, "_projected", lambda p, x, r: (spoilt if r.start == 20 else projected)(p, x, r)
    )
    with pytest.raises(AssertionError):
        test_pieces_give_the_numbers_of_the_whole("softmax", False)


@pytest.mark.usefixtures("small_pieces")
@pytest.mark.parametrize(("method", "share"), [("softmax", 8), ("elu", 1.5), ("taylor", 1.5)])
def test_pieces_hold_less_at_once(method: str, share: float) -> None:
    layer, x = layer_of(method).double(), torch.randn(1, N, WIDTH).double()
    whole = held(lambda: layer(x))
    with in_pieces(layer):
        assert held(lambda: layer(x)) * share < whole


def test_heads_in_turn_are_the_same_attention() -> None:
    layer, other = (MultiHeadAttention(32, 8, method="softmax").eval() for _ in range(2))
    other.load_state_dict(layer.state_dict())
    with_heads_in_turn(other, 16384)
    assert isinstance(other.attention, HeadsInTurn)
    assert other.state_dict().keys() == layer.state_dict().keys()
    x = torch.randn(2, 40, 32)
    mask = torch.arange(40).expand(2, 40) < torch.tensor([[40], [3]])
    torch.testing.assert_close(other(x, mask), layer(x, mask))
    torch.testing.assert_close(torch.jit.script(other)(x, mask), layer(x, mask))
    assert held(lambda: other(x)) * 2 < held(lambda: layer(x))


def test_only_long_quadratic_attention_takes_its_heads_in_turn() -> None:
    assert (heads_at_once(4096), heads_at_once(8192), heads_at_once(16384)) == (16, 4, 1)
    usual = (subject.module for subject in make_subjects(BuildRequest()))
    assert not any(isinstance(part, HeadsInTurn) for m in usual for part in m.modules())
    (elu,) = make_subjects(BuildRequest(methods=("elu",), dynamic="1:131072"))
    assert not any(isinstance(part, HeadsInTurn) for part in elu.module.modules())
    (long,) = make_subjects(BuildRequest(methods=("softmax",), dynamic="1:16384"))
    assert any(isinstance(part, HeadsInTurn) for part in long.module.modules())


@pytest.fixture(scope="module")
def long_folder(build_once: BuildOnce) -> Path:
    """A folder whose cases above 64 tokens are stored in part, dynamic and of one long length."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(long_cases, "WHOLE_TOKENS", 64)
        patch.setattr(long_cases, "_ENDS", 8)
        request = BuildRequest(
            methods=("elu", "causal_elu"),
            formats=("onnx",),
            entries=("forward",),
            lengths=(130,),
            dynamic="1:512",
            batch="1:2",
            d_model=8,
            heads=2,
        )
        return build_once(request, whole_tokens=64, ends=8)


def long_case(folder: Path, sequence: int) -> Case:
    with open_reference(folder / "layer/elu/reference.safetensors") as pack:
        return next(c for c in pack.index.cases if c.sequence == sequence and c.family == "normal")


def test_long_cases_are_stored_in_part(long_folder: Path, call_cli: CallCli) -> None:
    with open_reference(long_folder / "layer/elu/reference.safetensors") as pack:
        for case in pack.index.cases:
            assert (case.long is not None) == (case.sequence > 64)
            for name, tensor in pack.inputs(case).items():
                assert tensor.shape[:2] == (case.batch, case.sequence), name
        case = long_case(long_folder, 512)
        x, y = pack.inputs(case)["hidden_states"], pack.outputs(case)["output"]
        assert len(np.unique(x[0], axis=0)) <= 64
        assert 64 <= y.shape[1] < 128
        assert pack.compared(case, "output", np.zeros([1, 512, 8])).shape == y.shape
        assert pack.compared(case, "output", np.zeros([1, 511, 8])).shape == (1, 511, 8)
        assert (x[0, :-1] != x[0, -1]).any(axis=1).all(), "the last token is nowhere else"
    for artifact in manifest.read(long_folder).artifacts:
        declared = artifact.axis("sequence")
        assert declared.verified == declared.declared
    judged = call_cli("linattn_runtime_checks", long_folder, "--no-latency", "-q")
    assert judged.returncode == 0, judged.stderr


class Spoilt:
    """Outputs of a session, wrong from one token on."""

    def __init__(self, session: Session, start: int) -> None:
        self.session, self.start = session, start

    def run(self, inputs: Tensors) -> Tensors:
        outputs = {name: x.copy() for name, x in self.session.run(inputs).items()}
        outputs["output"][:, self.start :] *= 1.001
        return outputs


@pytest.mark.parametrize("start", [0, 128, 400, 511])
def test_a_wrong_token_of_a_long_case_is_seen(long_folder: Path, start: int) -> None:
    entry = next(
        a
        for a in manifest.read(long_folder).artifacts
        if a.method == "elu" and a.variant == "dynamic"
    )
    options = SessionOptions(mode="optimizer-on", threads=1)
    session = RUNTIMES["ort-cpu"].open(long_folder / entry.path, entry, options)
    with open_reference(long_folder / entry.reference) as pack:

        def codes(judged: object) -> set[Code]:
            found = run_cases(judged, entry, pack, "optimizer-on", lambda step: None)  # type: ignore[arg-type]
            return {case.code for case in found if case.sequence == 512}

        assert codes(session) == {Code.PASS}
        assert codes(Spoilt(session, start)) == {Code.PARITY_EXCEEDED}


def test_a_case_of_an_older_pack_is_whole() -> None:
    known = {"row": 0.0, "whole": 0.0}
    text = {"name": "a", "family": "normal", "batch": 1, "sequence": 9, "stored": "a"}
    assert Case.model_validate(text | {"eager_error": known, "sensitivity": known}).long is None


def test_a_long_turn_leaves_no_session_behind(long_folder: Path) -> None:
    entry = manifest.read(long_folder).artifacts[0]
    turn = Turn(
        folder=str(long_folder),
        artifact=entry,
        runtime="ort-cpu",
        case=long_case(long_folder, 512).name,
        threads=1,
        uncounted=1,
        counted=1,
    )
    take = TurnTaker()
    take(turn)
    assert take._sessions
    assert take._inputs
    take(turn.model_copy(update={"forget": True}))
    assert not take._sessions
    assert not take._inputs
    assert Times(seconds=[0.0]).session_s is None


def test_bytes_that_are_alive_are_counted() -> None:
    def call() -> Tensor:
        x = torch.ones(1000)  # 4000 bytes
        y = x + 1  # 4000 more
        del x
        return (y * 2).view(10, 100).view(-1) + y  # three at once

    assert held(call) == 12000


@pytest.mark.parametrize("method", ["softmax", "elu", "gla", "linformer"])
def test_short_runs_tell_what_a_longer_one_holds(method: str) -> None:
    options: dict[str, dict[str, object]] = {"linformer": {"max_length": 2048}}
    request = BuildRequest(
        methods=(method,),
        dynamic="1:2048",
        lengths=(),
        entries=("forward",),
        options=options if method == "linformer" else {},
    )
    (subject,) = make_subjects(request)
    growth = estimate.growth_of(subject)
    assert growth is not None
    x = torch.randn(1, 2048, 256)
    found = held(lambda: subject.eager()({"hidden_states": x})) + x.nbytes
    assert growth.whole(2048) == pytest.approx(found, rel=0.1)
    assert (growth.square > 0) == (method == "softmax")


def test_what_does_not_fit_is_refused_before_the_work(call_cli: CallCli, tmp_path: Path) -> None:
    out = tmp_path / "out"
    refused = call_cli("linattn_export", "build", *SOFTMAX.split(), "--memory-limit", 2, "-o", out)
    assert refused.returncode == 2
    assert "layer/softmax needs about" in refused.stderr
    assert "there are 2.0 GiB" in refused.stderr
    assert "such as 2048" in refused.stderr
    assert not out.exists()
    for limit in ("0", "-1", "nan", "inf"):
        wrong = call_cli("linattn_export", "build", "--memory-limit", limit, "-o", out)
        assert (wrong.returncode, "--memory-limit must be above 0" in wrong.stderr) == (2, True)


def test_the_machine_is_the_limit_where_none_is_given(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(environment, "free_memory", lambda: 2**29)
    request = BuildRequest(output=tmp_path / "out", methods=("elu",), quiet=True)
    with pytest.raises(UsageError, match=r"there are 0.5 GiB; ask for a smaller model"):
        build(request)


def test_the_estimate_is_told(call_cli: CallCli, tmp_path: Path) -> None:
    tiny = "-m elu -f pt2 --no-fixed --dynamic 2:8 --batch 1:2 --d-model 8 --heads 2 --no-check -v"
    told = call_cli("linattn_export", "build", *tiny.split(), "-o", tmp_path / "out")
    assert "memory   at most about 0." in told.stderr
    assert "layer/elu at 8 tokens" in told.stderr


def test_the_memory_of_the_machine_is_known() -> None:
    free = environment.free_memory()
    assert free is None or 2**26 < free < 2**50
