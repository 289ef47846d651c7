from __future__ import annotations

import os
from pathlib import Path

import pytest

from api.writing import writing
from tuner.errors import InvalidInput


def test_a_file_that_is_written_takes_the_place_of_the_old_one(tmp_path: Path) -> None:
    path = tmp_path / "out.csv"
    path.write_text("old")
    with writing(path, "--output") as stream:
        stream.write("new")
        assert path.read_text() == "old"
    assert path.read_text() == "new"
    assert os.listdir(tmp_path) == ["out.csv"]


def test_what_stands_beside_the_file_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "out.csv.part").write_text("mine")
    with writing(tmp_path / "out.csv", "--output") as stream:
        stream.write("new")
    assert (tmp_path / "out.csv.part").read_text() == "mine"


def test_a_pipe_is_written_to_by_the_name_it_was_given() -> None:
    reader, writer = os.pipe()
    with os.fdopen(reader) as end:
        with os.fdopen(writer, "w"), writing(Path(f"/dev/fd/{writer}"), "--output") as stream:
            stream.write("through")
        assert end.read() == "through"


def test_a_fault_while_writing_leaves_what_was_there(tmp_path: Path) -> None:
    path = tmp_path / "out.csv"
    path.write_text("old")

    def half() -> None:
        with writing(path, "--output") as stream:
            stream.write("half")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        half()
    assert path.read_text() == "old"
    assert os.listdir(tmp_path) == ["out.csv"]


@pytest.mark.parametrize("name", ["missing/out.csv", "."])
def test_a_place_that_cannot_be_written_is_named(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    with (
        pytest.raises(InvalidInput, match=r"--output: .*: must be a file that can be written"),
        writing(path, "--output"),
    ):
        pass


def test_a_device_is_written_to_as_it_is_and_a_link_stays_one(tmp_path: Path) -> None:
    with writing(Path("/dev/null"), "--output") as stream:
        stream.write("gone")
    assert not Path("/dev/null").is_file()
    target, link = tmp_path / "target", tmp_path / "link"
    link.symlink_to(target)
    with writing(link, "--output") as stream:
        stream.write("through")
    assert link.is_symlink()
    assert target.read_text() == "through"
