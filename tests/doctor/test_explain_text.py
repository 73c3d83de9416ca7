"""What explain is given: long, binary, in another encoding, made to take for ever."""

from __future__ import annotations

import io
import random
from pathlib import Path

import msgspec
import pytest

from wavefit.doctor import explain_text
from wavefit.doctor.explain import Answer, Explanation, explain
from wavefit.doctor.known_errors import load
from wavefit.doctor.machine import Machine

ERRORS = load()
PATTERNS = [(error.id, pattern) for error in ERRORS for pattern in error.compiled()]


@pytest.fixture
def nowhere(tmp_path: Path) -> Machine:
    """A machine of which nothing is known."""
    return Machine(tmp_path)


def first(text: str, on: Machine) -> Explanation:
    return explain(text, on, ERRORS).known[0]


class Endless(io.RawIOBase):
    """A stream of so many bytes of a log that says nothing, and then a last line."""

    def __init__(self, size: int, last: bytes) -> None:
        self._left, self._last = size, last

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        if self._left <= 0:
            part, self._last = self._last[: len(buffer)], self._last[len(buffer) :]
        else:
            part = (b"[ 12.345] all is well with GPU node and memory access\n" * 1300)[
                : min(len(buffer), self._left)
            ]
            self._left -= len(part)
        buffer[: len(part)] = part
        return len(part)


def test_a_log_of_100_megabytes_is_read_at_both_ends(nowhere: Machine) -> None:
    data, cut = explain_text.read(io.BufferedReader(Endless(100 << 20, b"\nHW Exception by GPU node-1\n")))
    assert cut
    assert len(data) <= 2 * explain_text.MOST_BYTES + 1
    assert first(explain_text.decode(data), nowhere).id == "gpu-hang"


@pytest.mark.parametrize("size", [0, 1, explain_text.MOST_BYTES, 2 * explain_text.MOST_BYTES])
def test_a_log_that_fits_is_read_whole(size: int) -> None:
    given = random.Random(1).randbytes(size)
    assert explain_text.read(io.BytesIO(given)) == (given, False)


def test_binary_is_searched_like_text(nowhere: Machine) -> None:
    noise = random.Random(7).randbytes(1 << 20)
    assert explain(explain_text.decode(noise), nowhere).known == ()
    text = explain_text.decode(noise + b"\nHW Exception by GPU node-1\n" + noise)
    assert first(text, nowhere).id == "gpu-hang"


def test_powershell_writes_utf_16(nowhere: Machine) -> None:
    data = "RuntimeError: No HIP GPUs are available\r\n".encode("utf-16")
    assert first(explain_text.decode(data), nowhere).id == "torch-no-hip-gpus"


def test_a_text_that_almost_matches_everywhere_ends() -> None:
    """The beginning of each message, thousands of times, never its end: every try is bounded, and so are they."""
    for name, pattern in PATTERNS:
        if pattern.regex.match(f"{pattern.anchor}~"):
            continue  # its beginning is all there is to it
        text = f"{pattern.anchor}~" * (200_000 // len(pattern.anchor))
        assert explain_text.Log(text).first([pattern]) is None, name


def test_an_answer_is_read_back(nowhere: Machine) -> None:
    answer = explain("HW Exception by GPU node-1", nowhere)
    assert msgspec.json.decode(msgspec.json.encode(answer), type=Answer) == answer
