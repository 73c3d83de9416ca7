"""The pick: which plans meet the constraints, which stand on the Pareto front, which one wins and why."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from wavefit.schema import Choice, Power, Record, Request, Unsupported
from wavefit.slower import replaced, useless, why

_TIE = 1.02  # measurements closer than 2 % are called a tie; run to run they differ by as much


def latency_s(record: Record) -> float | None:
    """The 90th percentile, which MLPerf quotes for SingleStream."""
    result = record.measurement.latency if record.measurement else None
    return result.latency.p90_s if result else None


def throughput_per_s(record: Record) -> float | None:
    result = record.measurement.throughput if record.measurement else None
    return result.throughput_per_s if result else None


def peak_bytes(record: Record) -> int | None:
    """Device memory on a GPU; host memory where the device is the CPU."""
    if record.measurement is None:
        return None
    on_cpu = record.device.kind == "cpu"
    return record.measurement.host_peak_bytes if on_cpu else record.measurement.device_peak_bytes


def meter(record: Record) -> Power | None:
    """The first meter that gave joules an inference."""
    meters = record.measurement.power if record.measurement else ()
    return next((power for power in meters if power.joules_per_inference is not None), None)


def joules(record: Record) -> float | None:
    """Joules an inference, by :func:`meter`."""
    power = meter(record)
    return power.joules_per_inference if power else None


def cost_per_million(record: Record, price_per_hour: float | None) -> float | None:
    """What a million inferences cost at full load, in the price's currency."""
    rate = throughput_per_s(record)
    return None if price_per_hour is None or not rate else price_per_hour / 3600 / rate * 1e6


def value(record: Record, request: Request) -> float | None:
    """The objective's figure, smaller is better; None where it was not measured."""
    if request.objective == "throughput":
        rate = throughput_per_s(record)
        return None if not rate else 1 / rate
    if request.objective == "cost":
        return cost_per_million(record, request.price_per_hour)
    measured: dict[str, Callable[[Record], float | None]] = {
        "latency": latency_s,
        "energy": joules,
        "memory": peak_bytes,
    }
    return measured[request.objective](record)


def violations(record: Record, request: Request) -> list[str]:
    """Which constraints a record breaks; a figure that is not known cannot be shown to hold."""
    limits = request.constraints
    broken = ["device is the CPU, and a GPU was required"] if _wrong_device(record, request) else []
    for name, limit, actual, show, worse in (
        ("p90 latency", limits.max_latency_s, latency_s(record), _ms, lambda a, b: a > b),
        ("throughput", limits.min_throughput_per_s, throughput_per_s(record), _rate, lambda a, b: a < b),
        ("peak memory", limits.max_memory_bytes, peak_bytes(record), _mib, lambda a, b: a > b),
    ):
        if limit is None:
            continue
        if actual is None:
            broken.append(f"{name} was not measured")
        elif worse(actual, limit):
            broken.append(f"{name} {show(actual)} misses the limit of {show(limit)}")
    return broken


def _wrong_device(record: Record, request: Request) -> bool:
    return request.require_gpu and record.device.kind == "cpu"


def pareto(records: Sequence[Record]) -> list[Record]:
    """Those that no other beats on latency, throughput, memory and energy at once; in the order of latency."""
    figures = {record.key: _figures(record) for record in records}
    front = [
        record
        for record in records
        if not any(_dominates(figures[other.key], figures[record.key]) for other in records)
    ]
    return sorted(front, key=lambda record: latency_s(record) or float("inf"))


def choose(records: Sequence[Record], refusals: Sequence[Unsupported], request: Request) -> Choice:
    """Picks the best of the plans that passed and meet the constraints, and says so in one sentence."""
    passed = [record for record in records if record.passed]
    front = tuple(record.key for record in pareto(passed))
    rated = [(figure, record) for record in passed if (figure := value(record, request)) is not None]
    admitted = sorted(
        (
            (figure, record)
            for figure, record in rated
            if not violations(record, request) and not useless(record, request.objective)
        ),
        key=lambda pair: (pair[0], pair[1].plan.batch),
    )
    admitted = _safest_first(admitted)
    if not admitted:
        return Choice(pick=None, front=front, sentence=_why_none(records, passed, rated, request))
    ranked = [record for _, record in admitted]
    sentence = _sentence(admitted, records, refusals, request)
    return Choice(
        pick=ranked[0].key,
        runners_up=tuple(record.key for record in ranked[1:]),
        front=front,
        sentence=sentence,
    )


def _safest_first(ranked: list[tuple[float, Record]]) -> list[tuple[float, Record]]:
    """With an fp32 plan first where that ties with the best: a lower precision must be faster to be worth its risk."""
    for place, (figure, record) in enumerate(ranked):
        if figure > ranked[0][0] * _TIE:
            break
        if record.plan.precision == "fp32":
            return [ranked[place], *ranked[:place], *ranked[place + 1 :]]
    return ranked


def _sentence(
    ranked: Sequence[tuple[float, Record]],
    records: Sequence[Record],
    refusals: Sequence[Unsupported],
    request: Request,
) -> str:
    best, winner = ranked[0]
    text = f"{winner.plan.label} wins on {request.objective} with {show_value(winner, request)}"
    if len(ranked) > 1:
        rivals = [pair for pair in ranked[1:] if pair[1].plan.series != winner.plan.series]
        figure, second = (rivals or ranked[1:])[0]
        ratio = figure / best if best else 1.0
        lead = f"{ratio:.2f} times better than" if ratio >= _TIE else "a tie within 2 % with"
        name = second.plan.label if rivals else f"its own batch {second.plan.batch}"
        text += f", {lead} {name} ({show_value(second, request)})"
    text += _slower(winner, records, request)
    failed = [record for record in records if not record.passed]
    if failed:
        text += "; " + ", ".join(f"{record.plan.label} failed ({record.why_not})" for record in failed[:2])
        text += f" and {len(failed) - 2} more failed" if len(failed) > 2 else ""
    missed = [
        (record, broken) for record in records if record.passed and (broken := violations(record, request))
    ]
    if missed:
        text += f"; {missed[0][0].plan.label} is out because its {missed[0][1][0]}"
        text += f" (and {len(missed) - 1} more)" if len(missed) > 1 else ""
    ran = {record.plan.route for record in records}
    if names := sorted({refusal.route for refusal in refusals} - ran):
        text += f"; {len(names)} route{'s' if len(names) != 1 else ''} cannot run here ({', '.join(names)})"
    return text + "."


def _slower(winner: Record, records: Sequence[Record], request: Request) -> str:
    """What was not picked though it is in a lower precision, and why it is no faster."""
    found = []
    for record in records:
        other = replaced(record, records)
        figure = value(record, request) if record.passed else None
        rival = value(other, request) if other else None
        if (
            other is None
            or figure is None
            or rival is None
            or record.key == winner.key
            or figure * _TIE < rival
        ):
            continue
        found.append(f"{record.plan.label} is no better than {other.plan.label}: {why(record, other)}")
    more = f" (and {len(found) - 1} more)" if len(found) > 1 else ""
    return f"; {found[0]}{more}" if found else ""


def _why_none(
    records: Sequence[Record],
    passed: Sequence[Record],
    rated: Sequence[tuple[float, Record]],
    request: Request,
) -> str:
    if rated:
        closest = min(rated, key=lambda pair: pair[0])[1]
        return f"No plan meets the constraints: {closest.plan.label} comes closest, but its " + (
            " and its ".join(violations(closest, request)) + "."
        )
    if passed:
        return f"No plan could be ranked by {request.objective}: it was not measured on this machine."
    if records:
        reasons = "; ".join(f"{record.plan.label}: {record.why_not}" for record in records[:3])
        return f"No plan passed: {reasons}."
    return "No route can run this model on this machine."


def show_value(record: Record, request: Request) -> str:
    """The objective's figure with its unit."""
    if request.objective == "throughput":
        return _rate(throughput_per_s(record) or 0.0)
    figure = value(record, request)
    if figure is None:
        return "not measured"
    if request.objective == "cost":
        return f"{figure:.3g} per million inferences"
    if request.objective == "energy":
        power = meter(record)
        by = f" by {power.meter}, which covers the {power.covers}" if power else ""
        return f"{figure:.3g} J per inference{by}"
    return f"p90 {_ms(figure)}" if request.objective == "latency" else _mib(figure)


def _figures(record: Record) -> tuple[float | None, ...]:
    rate = throughput_per_s(record)
    return latency_s(record), 1 / rate if rate else None, peak_bytes(record), joules(record)


def _dominates(one: tuple[float | None, ...], other: tuple[float | None, ...]) -> bool:
    """Better somewhere and nowhere worse, over the figures that both have; a tie is neither."""
    pairs = [(a, b) for a, b in zip(one, other, strict=True) if a is not None and b is not None]
    return any(a * _TIE < b for a, b in pairs) and all(a <= b * _TIE for a, b in pairs)


def _ms(seconds: float) -> str:
    return f"{_short(seconds * 1e3)} ms"


def _rate(per_second: float) -> str:
    return f"{_short(per_second)} inferences/s"


def _mib(size: float) -> str:
    return f"{size / 2**20:,.0f} MiB"


def _short(number: float) -> str:
    """Three digits, or all before the point where there are more; never an exponent for what people read."""
    return f"{number:,.0f}" if number >= 1000 else f"{number:.3g}"
