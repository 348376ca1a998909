"""How langid's texts are read, split and drawn, on made-up catalogues: no package is needed."""

import importlib.util
import random
from types import ModuleType

import pytest
import torch

from linattn_models.langid import LANGUAGES
from roots import ROOT

TRAINING = ROOT / "models" / "training" / "langid.py"
WORDS = (
    "add", "all", "change", "copy", "date", "delete", "file", "group", "help", "image", "list",
    "mail", "name", "open", "page",
)  # fmt: skip


@pytest.fixture
def training(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    spec = importlib.util.spec_from_file_location("langid_training", TRAINING)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    monkeypatch.setattr(module, "catalogue", catalogue)
    return module


def messages() -> list[str]:
    chance = random.Random(0)
    return sorted({" ".join(chance.sample(WORDS, 4)) for _ in range(60)})


def catalogue(language: str) -> dict[str, set[str]]:
    """Every message with the name of the language in it; and one that all languages share."""
    found = {text: {f"{text} {language}{language}"} for text in messages()}
    return found | {"shared": {"wagtail"}}


@pytest.mark.parametrize(
    ("text", "left"),
    [
        pytest.param("Hello %(name)s, %s!", "Hello", id="percent"),
        pytest.param("<b>Bold</b> &amp; {count} more", "Bold more", id="markup"),
        pytest.param("See https://example.org/x now", "See now", id="address"),
        pytest.param("  two\n lines ", "two lines", id="space"),
        pytest.param("100% fertig", "100% fertig", id="per-cent-sign"),
    ],
)
def test_only_text_is_left(text: str, left: str, training: ModuleType) -> None:
    assert training.cleaned(text) == left


def test_a_message_is_on_one_side_in_all_languages(training: ModuleType) -> None:
    train, held = training.split()
    assert list(train) == list(held) == list(LANGUAGES)

    def sides(side: dict[str, list[str]]) -> list[set[str]]:
        return [{" ".join(text.split()[:4]) for text in texts} for texts in side.values()]

    trained, kept = set().union(*sides(train)), set().union(*sides(held))
    assert len(trained) > len(kept) > 0
    assert not trained & kept
    assert trained | kept == {*messages(), "shared"}
    words = [set(text.split()) for text in trained]
    for text in kept:  # nor one that says nearly the same
        assert max(len(set(text.split()) & other) for other in words) < 3
    assert not any("wagtail" in texts for texts in (*train.values(), *held.values()))


def test_validation_leaves_held_out_messages_away(training: ModuleType) -> None:
    _, held = training.split()
    train, other = training.split(validate=True)
    for name in LANGUAGES:
        assert not set(held[name]) & {*train[name], *other[name]}
        assert other[name]


def test_pieces_are_whole_letters_and_not_too_long(training: ModuleType) -> None:
    chance, lengths = random.Random(0), set()
    texts = ["日本語のテキスト", "größer als zuvor", "ещё раз"]
    for most in (8, 9, 33, 192):
        for _ in range(50):
            piece = training.drawn(texts, most, chance)
            assert piece.decode()
            assert len(piece) <= most
            lengths.add(len(piece))
    assert len(lengths) > 20


def test_a_batch_is_padded_and_masked_on_the_right(training: ModuleType) -> None:
    tokens, mask, labels = next(training.batches(training.split()[0], 0))
    assert tokens.shape == mask.shape
    assert len(labels) == len(tokens)
    assert mask.any(dim=1).all()
    assert not (mask.int().diff(dim=1) > 0).any()
    assert not tokens[~mask].any()
    assert torch.equal(mask.sum(1) == mask.size(1), mask[:, -1])
    for row, real, label in zip(tokens[:8], mask, labels, strict=False):
        assert bytes(row[real].tolist()).decode()
        assert 0 <= label < len(LANGUAGES)


def test_a_package_that_is_missing_is_named(
    training: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(training, "_PACKAGES", ("no_such_package_here",))
    with pytest.raises(SystemExit, match="no_such_package_here is not installed; see the head of"):
        training.folders()
