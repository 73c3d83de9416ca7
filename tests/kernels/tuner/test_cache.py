import multiprocessing
from pathlib import Path

import pytest

from wavefit.errors import InputError
from wavefit.kernels.tuner.cache import Lines
from wavefit.schema import Struct


class Note(Struct, frozen=True, kw_only=True):
    writer: int
    number: int
    text: str = ""


def lines(path: Path) -> Lines[Note]:
    return Lines(path, Note)


def write(path: str, writer: int, count: int) -> None:
    for number in range(count):
        lines(Path(path)).append(Note(writer=writer, number=number, text="x" * 200))


def test_two_writers_lose_nothing(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "notes.jsonl"
    context = multiprocessing.get_context("spawn")
    writers = [context.Process(target=write, args=(str(path), writer, 40)) for writer in range(2)]
    for each in writers:
        each.start()
    for each in writers:
        each.join()
    found = list(lines(path).read())
    for writer in range(2):
        assert [note.number for note in found if note.writer == writer] == list(range(40))


@pytest.mark.parametrize("torn", [b'{"writer":1,"num', b"\xff\xfe", b"[]", b"null", b'{"writer":"one"}'])
def test_a_torn_line_costs_only_itself(tmp_path: Path, torn: bytes) -> None:
    path = tmp_path / "notes.jsonl"
    lines(path).append(Note(writer=0, number=0))
    with path.open("ab") as stream:
        stream.write(torn)  # and no end of line: the process was killed
    lines(path).append(Note(writer=0, number=1), Note(writer=0, number=2))
    assert [note.number for note in lines(path).read()] == [0, 1, 2]


def test_no_file_has_no_lines(tmp_path: Path) -> None:
    assert list(lines(tmp_path / "none").read()) == []


def test_says_where_it_cannot_write(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="cannot be written"):
        lines(tmp_path / "file" / "notes.jsonl").append(Note(writer=0, number=0))
