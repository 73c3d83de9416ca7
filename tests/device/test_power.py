"""Meters against files that change while they run, and against sums done by hand."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path

import pytest
from fakes import sysfs

from wavefit.device.power import Meter, meters
from wavefit.device.power._clock import CounterMeter, PowerMeter, Unwrapped, mean_rate, mean_watts
from wavefit.device.probe import probe
from wavefit.schema import Device


def gpu(folder: Path, files: dict[str, object], integrated: bool | None = False) -> Device:
    sysfs.write(folder / "hwmon/hwmon3", {"name": "amdgpu", **files})
    return Device(id="gpu0", kind="gpu", vendor="amd", integrated=integrated, sysfs=str(folder))


def cpu(folder: Path, **packages: tuple[int, int]) -> Device:
    """A CPU whose RAPL packages have these energies and ranges, in microjoules."""
    for number, (name, (energy, span)) in enumerate(packages.items()):
        files = {"name": name.replace("_", "-"), "energy_uj": energy, "max_energy_range_uj": span}
        sysfs.write(folder / f"intel-rapl:{number}", files)
    return Device(id="cpu", kind="cpu", sysfs=str(folder))


def only(device: Device) -> Meter:
    (meter,) = meters(device)
    return meter


def test_mean_watts_is_the_trapezoid() -> None:
    # 10 W for 1 s, a ramp to 30 W over 2 s, 30 W for 1 s: 10 + 40 + 30 = 80 J in 4 s.
    assert mean_watts([(0.0, 10.0), (1.0, 10.0), (3.0, 30.0), (4.0, 30.0)]) == pytest.approx(20.0)
    assert mean_watts([(0.0, 10.0)]) is None
    assert mean_watts([]) is None


def test_the_rate_of_a_counter_that_moves_in_steps() -> None:
    # 100 W in steps of 10 J each 0.1 s, read every 0.02 s.
    readings = [(0.02 * n, 10.0 * ((2 * n + 5) // 10)) for n in range(53)]
    assert mean_rate(readings) == pytest.approx(100.0, rel=0.02)
    assert (readings[-1][1] - readings[0][1]) / readings[-1][0] < 97  # what its ends alone would give
    assert mean_rate([(0.0, 5.0), (2.0, 9.0)]) == pytest.approx(2.0)
    assert mean_rate([(0.0, 5.0), (2.0, 5.0)]) is None
    assert mean_rate([(0.0, 5.0), (2.0, 4.0)]) is None
    assert mean_rate([(0.0, 5.0)]) is None


def test_a_power_meter_follows_a_file_that_changes(tmp_path: Path) -> None:
    device = gpu(tmp_path, {"power1_average": 10_000_000})
    meter = only(device)
    begin = time.monotonic()
    meter.start()
    time.sleep(0.4)
    sysfs.write(tmp_path / "hwmon/hwmon3", {"power1_average": 30_000_000})
    change = time.monotonic()
    time.sleep(0.4)
    power = meter.stop(4)
    end = time.monotonic()
    assert power is not None
    expected = 10 * (change - begin) + 30 * (end - change)
    assert power.joules == pytest.approx(
        expected, abs=30 * 0.15
    )  # within a few intervals of the change and the ends
    assert power.joules is not None
    assert power.joules_per_inference == pytest.approx(power.joules / 4)
    assert power.watts is not None
    assert 10 < power.watts < 30
    assert 3 <= power.samples <= 0.8 / 0.05 + 5
    assert (power.meter, power.covers) == ("amdgpu hwmon power1_average", "card")


def test_a_meter_that_becomes_unreadable_gives_nothing(tmp_path: Path) -> None:
    meter = only(gpu(tmp_path, {"power1_average": 10_000_000}))
    (tmp_path / "hwmon/hwmon3/power1_average").unlink()
    meter.start()
    assert meter.stop(1) is None


def test_a_meter_can_be_used_again_and_stopped_early(tmp_path: Path) -> None:
    meter = only(gpu(tmp_path, {"power1_average": 10_000_000}))
    assert meter.stop(1) is None  # never started
    for _ in range(2):
        meter.start()
        power = meter.stop(0)
        assert power is not None
        assert power.watts == pytest.approx(10.0)
        assert power.joules_per_inference is None
        assert power.samples == 2
    meter.start()
    meter.start()
    assert meter.stop(1) is not None
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("meter")]


@pytest.mark.parametrize(
    ("files", "names"),
    [
        ({"power1_average": 5000000, "power1_input": 6000000}, ["amdgpu hwmon power1_average"]),
        ({"power1_input": 6000000}, ["amdgpu hwmon power1_input"]),
        ({"power1_average": "N/A", "power1_input": 6000000}, ["amdgpu hwmon power1_input"]),
        ({"power1_average": 5000000, "power1_label": "PPT"}, ["amdgpu hwmon power1_average (PPT)"]),
        (
            {"power1_average": 1, "power2_average": 2},
            ["amdgpu hwmon power1_average", "amdgpu hwmon power2_average"],
        ),
        (
            {"power1_average": 5000000, "energy1_input": 7},
            ["amdgpu hwmon energy1_input", "amdgpu hwmon power1_average"],
        ),
        ({"power1_cap": 290000000}, []),
        ({"power1_average": "N/A"}, []),
        ({"power1_average": 0}, []),
        ({"power1_average": 65535}, []),
        ({"power1_average": 65535000000}, []),
        ({"power1_average": 4294967295}, []),
        ({"power1_average": -5}, []),
        ({"power1_average": ""}, []),
    ],
)
def test_channels(tmp_path: Path, files: dict[str, object], names: list[str]) -> None:
    assert [meter.name for meter in meters(gpu(tmp_path, files))] == names


@pytest.mark.parametrize(
    ("label", "integrated", "covers"),
    [
        (None, False, "card"),
        (None, None, "card"),
        (None, True, "package"),
        ("PPT", False, "package"),
        ("fastPPT", True, "package"),
        ("slowPPT", None, "package"),
        ("pkg", False, "card"),
    ],
)
def test_what_a_channel_covers(
    tmp_path: Path, label: str | None, integrated: bool | None, covers: str
) -> None:
    files: dict[str, object] = {"power1_average": 5000000}
    if label is not None:
        files["power1_label"] = label
    assert only(gpu(tmp_path, files, integrated)).covers == covers


def test_an_energy_counter_of_a_gpu(tmp_path: Path) -> None:
    files = {"energy1_input": 1_000_000}
    meter = only(gpu(tmp_path, files))
    meter.start()
    time.sleep(0.05)
    sysfs.write(tmp_path / "hwmon/hwmon3", {"energy1_input": 3_500_000})
    power = meter.stop(5)
    assert power is not None
    assert power.joules == pytest.approx(
        2.5, rel=0.05
    )  # scaled from between the readings to between start and stop


def test_rapl_over_a_turn_of_its_counter(tmp_path: Path) -> None:
    meter = only(cpu(tmp_path, package_0=(9_000_000, 10_000_000), core=(5, 10)))
    meter.start()
    time.sleep(0.05)
    sysfs.write(tmp_path / "intel-rapl:0", {"energy_uj": 1_500_000})
    power = meter.stop(10)
    assert power is not None
    assert power.joules == pytest.approx(2.5, rel=0.05)
    assert power.joules_per_inference == pytest.approx(0.25, rel=0.05)
    assert (power.meter, power.covers) == ("rapl package-0", "package")


def test_two_packages_are_added(tmp_path: Path) -> None:
    meter = only(cpu(tmp_path, package_0=(0, 10**9), package_1=(10**9 - 1, 10**9)))
    meter.start()
    time.sleep(0.05)
    sysfs.write(tmp_path, {"intel-rapl:0/energy_uj": 1_000_000, "intel-rapl:1/energy_uj": 2_000_000 - 1})
    power = meter.stop(1)
    assert power is not None
    assert power.joules == pytest.approx(3.0, rel=0.05)
    assert power.meter == "rapl package-0 + package-1"


def test_a_counter_that_stands_still_or_cannot_be_read_is_no_reading(tmp_path: Path) -> None:
    meter = only(cpu(tmp_path, package_0=(7, 10)))
    meter.start()
    assert meter.stop(1) is None
    sysfs.write(tmp_path, {"intel-rapl:0/energy_uj": "garbage"})
    assert meters(Device(id="cpu", kind="cpu", sysfs=str(tmp_path))) == []


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may read everything")
def test_rapl_that_only_root_may_read_is_no_meter(tmp_path: Path) -> None:
    device = cpu(tmp_path, package_0=(7, 10))
    (tmp_path / "intel-rapl:0/energy_uj").chmod(0)
    assert meters(device) == []


def test_unwrapping() -> None:
    values = iter([90, 95, 5, None, 4, 3])
    counter = Unwrapped(lambda: next(values), 100)
    assert [counter() for _ in range(6)] == [0, 5, 15, None, 114, 213]


def test_a_fall_without_a_known_range_ends_the_counting() -> None:
    values = iter([90, 5, 95])
    counter = Unwrapped(lambda: next(values), None)
    assert [counter() for _ in range(3)] == [0, None, None]


def test_every_turn_is_seen_between_start_and_stop() -> None:
    """A counter that turns over four times in a run: the thread reads often enough to see each turn."""
    begin = time.monotonic()
    counter = Unwrapped(lambda: int((time.monotonic() - begin) * 1000) % 100, 100)
    meter = CounterMeter("turning", "chip", counter, interval_s=0.01)
    meter.start()
    time.sleep(0.4)
    power = meter.stop(1)
    assert power is not None
    assert power.watts == pytest.approx(1000, rel=0.1)  # 1 a millisecond


def test_readings_that_fail_in_between_are_left_out() -> None:
    values = iter([20.0, None] * 10_000)
    meter = PowerMeter("hiccups", "chip", lambda: next(values), interval_s=0.01)
    meter.start()
    time.sleep(0.1)
    power = meter.stop(1)
    assert power is not None
    assert power.watts == pytest.approx(20.0)


def test_meters_of_probed_machines(tmp_path: Path) -> None:
    sysfs.linux(tmp_path)
    sysfs.apu(tmp_path)
    sysfs.card(tmp_path)
    files = {"name": "package-0", "energy_uj": 5, "max_energy_range_uj": 65532610987}
    sysfs.write(tmp_path / "sys/class/powercap/intel-rapl:0", files)
    names = [[meter.name for meter in meters(device)] for device in probe(tmp_path)]
    ppt = "amdgpu hwmon power1_average (PPT)"
    assert names == [["rapl package-0"], [ppt], [ppt]]


def test_devices_without_meters() -> None:
    assert meters(Device(id="cpu", kind="cpu")) == []
    assert meters(Device(id="gpu0", kind="gpu", vendor="amd", pci_address="0000:03:00.0")) == []
    assert (
        meters(Device(id="gpu0", kind="gpu", vendor="nvidia", pci_address="0000:03:00.0", sysfs="/none"))
        == []
    )
