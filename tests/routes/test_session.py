"""What every opened plan does, whichever runtime is behind it."""

from __future__ import annotations

import numpy as np
import pytest
from fakes.sessions import WIDTH, Failing, Overlapping, Sleeping, batches

from wavefit.errors import InputError, RouteError


@pytest.mark.parametrize("kind", [Sleeping, Overlapping])
def test_a_stream_answers_in_order(kind: type[Sleeping]) -> None:
    given = batches(2, count=5)
    answers = [outputs["y"] for outputs in kind(0.0).stream(given)]
    np.testing.assert_array_equal(answers, [each["x"] for each in given])
    assert list(kind(0.0).stream([])) == []


def test_a_stream_takes_no_batch_before_it_has_room() -> None:
    taken = []

    def given():
        for each in batches(1, count=3):
            taken.append(each)
            yield each

    stream = Sleeping(0.0).stream(given())
    assert not taken
    next(stream)
    assert len(taken) == 1


def test_a_stream_holds_each_batch_to_the_models_inputs() -> None:
    stream = Sleeping(0.0).stream([*batches(1, count=1), {"x": np.zeros((1, WIDTH), np.float64)}])
    next(stream)
    with pytest.raises(InputError, match="float64"):
        next(stream)


def test_a_stream_ends_at_a_failure_and_at_the_sessions_end() -> None:
    failing = Failing(1, RouteError("the GPU was reset"))
    with pytest.raises(RouteError, match="reset"):
        list(failing.stream(batches(1, count=3)))
    assert failing.attempts == 2
    session = Sleeping(0.0)
    stream = session.stream(batches(1, count=2))
    next(stream)
    session.close()
    with pytest.raises(RouteError, match="closed"):
        next(stream)
