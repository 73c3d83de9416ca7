from __future__ import annotations

from pathlib import Path

import pytest
from fakes import records

from wavefit.bundle.journal import RECORDS, WORK, Journal, read_records
from wavefit.errors import InputError

ALL = records.journal()


def test_records_come_back_as_they_were(tmp_path: Path) -> None:
    with Journal(tmp_path / "a.wavefit") as journal:
        for record in ALL:
            journal.append(record)
    with Journal(tmp_path / "a.wavefit") as journal:
        assert [journal.find(record.key) for record in ALL] == ALL
        assert journal.find("another") is None


def test_a_torn_last_line_is_passed_over_and_then_overwritten(tmp_path: Path) -> None:
    folder = tmp_path / "a.wavefit"
    with Journal(folder) as journal:
        journal.append(ALL[0])
        journal.append(ALL[1])
    path = folder / WORK / RECORDS
    path.write_bytes(path.read_bytes()[:-100])
    with Journal(folder) as journal:
        assert journal.find(ALL[0].key) == ALL[0]
        assert journal.find(ALL[1].key) is None
        journal.append(ALL[2])
    assert list(read_records(path)) == [ALL[0], ALL[2]]


def test_a_line_in_the_middle_that_is_no_record_is_named(tmp_path: Path) -> None:
    path = tmp_path / RECORDS
    path.write_text('{"key": 1}\n{"key": 2}\n')
    with pytest.raises(InputError, match=r"records.jsonl, line 1, is not a Record"):
        list(read_records(path))


def test_two_runs_on_one_folder_do_not_mix(tmp_path: Path) -> None:
    with Journal(tmp_path / "a.wavefit"), pytest.raises(InputError, match="another wavefit is working on"):
        Journal(tmp_path / "a.wavefit").__enter__()


def test_a_folder_that_holds_something_else_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "letter.txt").write_text("dear")
    with pytest.raises(InputError, match="holds something else"):
        Journal(tmp_path).__enter__()
    assert [path.name for path in tmp_path.iterdir()] == ["letter.txt"]


def test_a_file_cannot_become_a_bundle(tmp_path: Path) -> None:
    (tmp_path / "a.wavefit").write_text("")
    with pytest.raises(InputError, match="is a file"):
        Journal(tmp_path / "a.wavefit").__enter__()
