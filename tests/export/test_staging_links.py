"""Output folders behind symbolic links: the folder is replaced, the link stays."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from linattn_export.build.staging import check_output, staged
from linattn_runtime_checks.contract.errors import UsageError
from linattn_runtime_checks.contract.manifest import FILE_NAME

Arrange = Callable[[Path], Path]


def write(output: Path) -> None:
    with staged(output) as folder:
        (folder / FILE_NAME).write_text("new")


def ours(folder: Path) -> Path:
    folder.mkdir(parents=True)
    (folder / FILE_NAME).write_text("old")
    (folder / "old.onnx").write_text("old")
    return folder


def linked(to: str | Path, link: Path) -> Path:
    link.symlink_to(to)
    return link


def to_ours(here: Path) -> Path:
    return linked(ours(here / "there" / "real"), here / "link")


def relative(here: Path) -> Path:
    ours(here / "there" / "real")
    return linked("there/real", here / "link")


def to_an_empty_folder(here: Path) -> Path:
    (here / "there" / "real").mkdir(parents=True)
    return linked("there/real", here / "link")


def to_another_link(here: Path) -> Path:
    return linked(to_ours(here), here / "second")


def with_a_slash(here: Path) -> Path:
    return Path(f"{to_ours(here)}/")


def below_a_link(here: Path) -> Path:
    ours(here / "there" / "real")
    return linked("there", here / "link") / "real"


def new_below_a_link(here: Path) -> Path:
    (here / "there").mkdir()
    return linked("there", here / "link") / "real"


@pytest.mark.parametrize(
    "arrange",
    [
        to_ours, relative, to_an_empty_folder, to_another_link, with_a_slash, below_a_link,
        new_below_a_link,
    ],
)  # fmt: skip
def test_the_folder_behind_is_replaced_and_the_link_stays(arrange: Arrange, tmp_path: Path) -> None:
    output = arrange(tmp_path)
    links = {path: os.readlink(path) for path in tmp_path.iterdir() if path.is_symlink()}
    write(output)
    assert {path: os.readlink(path) for path in links} == links
    real = tmp_path / "there" / "real"
    assert [path.name for path in real.iterdir()] == [FILE_NAME]
    assert (output / FILE_NAME).read_text() == "new"
    assert [path.name for path in real.parent.iterdir()] == ["real"], "nothing is left beside it"


def to_nothing(here: Path) -> Path:
    return linked("gone", here / "link")


def below_a_link_to_nothing(here: Path) -> Path:
    return linked("gone", here / "link") / "sub"


def to_itself(here: Path) -> Path:
    return linked("link", here / "link")


def round_and_round(here: Path) -> Path:
    linked("two", here / "one")
    return linked("one", here / "two")


def to_a_file(here: Path) -> Path:
    (here / "file").write_text("kept")
    return linked("file", here / "link")


def to_a_folder_of_others(here: Path) -> Path:
    (here / "theirs").mkdir()
    (here / "theirs" / "file").write_text("kept")
    return linked("theirs", here / "link")


@pytest.mark.parametrize(
    ("arrange", "words"),
    [
        (to_nothing, r"link is a symbolic link to gone, which does not exist; make that folder"),
        (below_a_link_to_nothing, r"link is a symbolic link to gone, which does not exist"),
        (to_itself, "a symbolic link on the way leads to itself; remove the link"),
        (round_and_round, "a symbolic link on the way leads to itself"),
        (to_a_file, "link is a file; give a folder with `output`"),
        (to_a_folder_of_others, "link is not empty and holds no"),
    ],
)
def test_a_link_to_what_is_no_place_is_refused(
    arrange: Arrange, words: str, tmp_path: Path
) -> None:
    output = arrange(tmp_path)
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(UsageError, match=words):
        check_output(output)
    with pytest.raises(UsageError, match=words):
        write(output)
    assert sorted(tmp_path.rglob("*")) == before


def test_a_mount_point_is_refused_before_the_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody can rename one."""
    monkeypatch.setattr(Path, "is_mount", lambda self: self == tmp_path / "volume")
    (tmp_path / "volume").mkdir()
    with pytest.raises(
        UsageError, match=r"link is a mount point.* such as `output='.*link/artifacts'`"
    ):
        check_output(linked("volume", tmp_path / "link"))


def test_a_link_across_devices(tmp_path: Path) -> None:
    """The new folder is made beside the real one: a rename never leaves its device."""
    other = Path("/dev/shm")
    if not other.is_dir() or other.stat().st_dev == tmp_path.stat().st_dev:
        pytest.skip("there is one device here only")
    import tempfile

    with tempfile.TemporaryDirectory(dir=other) as place:
        link = linked(ours(Path(place) / "real"), tmp_path / "link")
        write(link)
        assert link.is_symlink()
        assert (Path(place) / "real" / FILE_NAME).read_text() == "new"
