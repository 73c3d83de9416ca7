"""ONNX Runtime with WebGPU: any vendor's GPU, through Vulkan on Linux and Direct3D 12 on Windows.

Two packages bring it: a plug-in for any ONNX Runtime from 1.23 on (onnxruntime-ep-webgpu), and a build of its own
(onnxruntime-webgpu). The plug-in is taken where both are there.
"""

from __future__ import annotations

import platform
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from wavefit.errors import RouteError
from wavefit.routes import _gpus, _ort, _packages, _vulkan
from wavefit.routes.session import Session
from wavefit.schema import Device, Model, Plan, Precision, Request, Unsupported

_NAME = "ort_webgpu"
_PROVIDER = "WebGpuExecutionProvider"
_BUILD = "onnxruntime-webgpu"
_PLUGIN = "onnxruntime-ep-webgpu"
_PLUGIN_NEEDS = (1, 23)  # the first with register_execution_provider_library
_PYTHON_NEEDS = (3, 11)  # neither package has wheels for older ones (PyPI, November 2026)
_INSTALL = "pip install 'wavefit[webgpu]'"
_FILES: tuple[Precision, ...] = (
    "fp32",
    "fp16",
)  # that its shaders compute as the file says; int8 has no kernels
_POWER = "ep.webgpuexecutionprovider.powerPreference"  # ONNX Runtime's webgpu_provider_options.h


def plans(devices: Sequence[Device], model: Model, request: Request) -> list[Plan | Unsupported]:
    problem = _gpus.no_gpu(devices) or _package_problem()
    if problem:
        return [Unsupported(route=_NAME, reason=problem[0], fix=problem[1])]
    return [
        _plan(device, devices, model, request, precision)
        for device in _gpus.gpus(devices)
        for precision in request.precisions
    ]


def _package_problem() -> _ort.Problem | None:
    found = _packages.installed()
    if _packages.version(_PLUGIN) is None and _BUILD not in found:
        if sys.version_info < _PYTHON_NEEDS:
            return "the WebGPU packages need Python 3.11 or newer", "use Python 3.11 or newer"
        return f"neither {_PLUGIN} nor {_BUILD} is installed", _INSTALL
    if len(found) > 1:
        names = list(found)
        reason = f"{_packages.listed(names, found)} share one folder and overwrite each other"
        return reason, f"pip uninstall -y {' '.join(names)} && {_INSTALL}"
    if not found:
        return f"{_PLUGIN} is installed without ONNX Runtime", _INSTALL
    name, version = next(iter(found.items()))
    if name != _BUILD and _packages.numbers(version)[:2] < _PLUGIN_NEEDS:
        return (
            f"{_PLUGIN} needs ONNX Runtime 1.23 or newer, this is {name} {version}",
            f"pip install -U {name}",
        )
    return None


def _plan(
    device: Device, devices: Sequence[Device], model: Model, request: Request, precision: Precision
) -> Plan | Unsupported:
    problem = _gpus.hidden(device, devices, "WebGPU")
    problem = problem or _ort.precision_problem("WebGPU", model, precision, _FILES)
    if problem:
        return _ort.refused(_NAME, device, problem, precision)
    return _ort.plan(_NAME, device, model, request, precision)


def open(plan: Plan, model: Model, device: Device, workdir: Path) -> Session:
    _ort.refuse(_package_problem())
    if platform.system() == "Linux":
        _check_adapter(device, _vulkan.adapters())
    return _open(model, _power_preference(device), workdir)


def _open(model: Model, preference: str, workdir: Path) -> Session:
    """On whatever adapter WebGPU prefers, a software one too: for tests of the route without a GPU."""

    def configure(options: Any) -> None:
        # Not a provider's option: onnxruntime-webgpu 1.27 takes any of those, and reads none.
        options.add_session_config_entry(_POWER, preference)

    def attach(options: Any) -> None:
        options.add_provider_for_devices([_plugin_device()], {})

    plugin = attach if _packages.version(_PLUGIN) else None
    return _ort.OrtSession(model, _ort.Provider(_PROVIDER, configure=configure, attach=plugin), workdir)


def _power_preference(device: Device) -> str:
    return "low-power" if device.integrated else "high-performance"


def _check_adapter(device: Device, found: Sequence[_vulkan.Adapter]) -> None:
    """Raises:
    RouteError: WebGPU would run on software, or on another GPU than the plan's.
    """
    adapter = _vulkan.preferred(found, low_power=bool(device.integrated))
    driver = "sudo apt install mesa-vulkan-drivers (AMD, Intel), or the vendor's driver (NVIDIA)"
    if adapter is None:
        raise RouteError("Vulkan sees no GPU", driver)
    if adapter.software:
        raise RouteError(
            f"Vulkan offers only {adapter.name}, which is software on the CPU and no GPU", driver
        )
    if device.pci_id is not None and adapter.pci_id != device.pci_id.lower():
        raise RouteError(
            f"WebGPU would run on {adapter.name} ({adapter.pci_id}) and not on {device.id} ({device.pci_id})",
            "vulkaninfo --summary lists what Vulkan sees",
        )


def _plugin_device() -> Any:
    """The plug-in's device for a session.

    Raises:
        RouteError: the plug-in offers none (its ``webgpu.virtual`` device only compiles and is left out).
    """
    import onnxruntime as ort
    import onnxruntime_ep_webgpu as plugin

    if not any(device.ep_name == _PROVIDER for device in ort.get_ep_devices()):
        ort.register_execution_provider_library(_PROVIDER, plugin.get_library_path())
    for device in ort.get_ep_devices():
        if device.ep_name == _PROVIDER and not _is_virtual(device):
            return device
    raise RouteError(
        f"{_PLUGIN} finds no GPU on this machine", "install the GPU's driver: see vulkaninfo --summary"
    )


def _is_virtual(device: Any) -> bool:
    return str(dict(device.device.metadata).get("is_virtual", "0")).lower() in ("1", "true")


def versions() -> dict[str, str]:
    plugin = _packages.version(_PLUGIN)
    return {**_ort.installed(), **({_PLUGIN: plugin} if plugin else {})}
