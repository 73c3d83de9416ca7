"""The networks that the engine is held to, each as an ONNX file: full size for benchmarks, small for tests.

Weights are drawn from a seed, by He's rule for nets of convolutions and at a gain of 1 for encoders; batch
normalisations take their statistics from seeded images, and graphs without any are balanced (_balance.py). So
activations keep their size through all layers, and different inputs give different answers.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import onnx

_SEED = 20_261_130
_OPSET = 17


@dataclass(frozen=True)
class Net:
    """How a network is made.

    Args:
        factory: "module:function" of a PyTorch module.
        side: of its images, full and small; None for token ids.
        small: arguments of the small one.
        length: of its sequences, full and small.
    """

    factory: str
    side: tuple[int, int] | None = (224, 64)
    small: dict[str, Any] = field(default_factory=dict)
    full: dict[str, Any] = field(default_factory=dict)
    length: tuple[int, int] = (128, 9)


_TEN = {"classes": 10}
TORCH = {
    "resnet18": Net("_networks:resnet18", small={"depths": (1, 1, 1, 1), **_TEN}),
    "resnet50": Net("_networks:resnet50", small={"depths": (1, 1, 1, 1), **_TEN}),
    "vgg16": Net("_torch_images:vgg16", small={"divide": 8, "side": 64, **_TEN}),
    "densenet": Net("_torch_more_nets:densenet", small={"counts": (2, 2, 2), "growth": 8, **_TEN}),
    "inception_v3": Net("_torch_images:inception_v3", (299, 107), {"divide": 8, "inner": (128,), **_TEN}),
    "mobilenet_v2": Net("_torch_more_nets:mobilenet", small={"divide": 2, "most": 2, **_TEN}),
    "mobilenet_v3": Net(
        "_torch_images:mobilenet_v3", small={"rows": (0, 1, 3, 4, 6, 7, 10, 12), "divide": 2, **_TEN}
    ),
    "efficientnet": Net("_torch_held_out:efficientnet", small={"divide": 2, "most": 1, **_TEN}),
    "yolo_v5": Net("_torch_yolo:yolo_v5", (640, 96), {"width": 8, "counts": (1, 1, 1, 1), "classes": 3}),
    "yolo_v8": Net("_torch_yolo:yolo_v8", (640, 96), {"width": 4, "counts": (1, 1, 1, 1), "classes": 3}),
    "unet": Net("_torch_more_nets:UNet", (256, 40), {"width": 8, "levels": 3}),
    "vit_b": Net(
        "_torch_images:vit_b", (224, 48), {"width": 48, "heads": 3, "blocks": 2, "side": 48, **_TEN}
    ),
    "bert": Net("_torch_bert:bert_base", None, {"width": 48, "heads": 3, "layers": 2, "words": 97}),
}
LIGHT = (
    "bvlc_alexnet",
    "densenet121",
    "inception_v1",
    "inception_v2",
    "resnet50",
    "shufflenet",
    "squeezenet",
)
LIGHT += ("vgg19", "zfnet512")


def resnet18(depths: tuple[int, ...] = (2, 2, 2, 2), classes: int = 1000) -> Any:
    """The example's net, drawn and calibrated here as the others are."""
    from resnet50 import Basic

    return _residual(Basic, depths, classes)


def resnet50(depths: tuple[int, ...] = (3, 4, 6, 3), classes: int = 1000) -> Any:
    from resnet50 import Bottleneck

    return _residual(Bottleneck, depths, classes)


def _residual(block: Any, depths: tuple[int, ...], classes: int) -> Any:
    from resnet50 import ResNet
    from torch import nn

    net = ResNet(block, depths, classes)
    for module in net.modules():
        if isinstance(module, block):
            nn.init.constant_(
                module.body[-1].weight, 0.3
            )  # as in trained nets, a block changes its input a little
    return net


def names() -> list[str]:
    """All networks at full size; those of the onnx package with "onnx_" before their names."""
    return [*TORCH, *(f"onnx_{name}" for name in LIGHT)]


def file(name: str, folder: Path, small: bool = False) -> Path:
    """A network's ONNX file, with a symbolic batch; made where it is not there yet.

    Raises:
        ImportError: PyTorch is missing, for those that are exported.
    """
    path = folder / f"{name}{'_small' if small else ''}.onnx"
    if not path.exists():
        folder.mkdir(parents=True, exist_ok=True)
        partial = path.with_suffix(".partial")
        if name.startswith("onnx_"):
            onnx.save(_light(name.removeprefix("onnx_")), str(partial))
        else:
            _export(name, partial, small)
        partial.replace(path)
    return path


def feeds(path: Path, batch: int, seed: int) -> dict[str, np.ndarray]:
    """Inputs of a file: pictures of coarse structure and fine noise, or token ids with padding in every second row."""
    graph = onnx.load(str(path), load_external_data=False).graph
    stored = {tensor.name for tensor in graph.initializer}
    rng = np.random.default_rng(seed)
    made = {}
    for value in graph.input:
        if value.name not in stored:
            dims = [dim.dim_value for dim in value.type.tensor_type.shape.dim]
            made[value.name] = _input(value.name, (batch, *dims[1:]), rng)
    return made


def _input(name: str, shape: tuple[int, ...], rng: np.random.Generator) -> np.ndarray:
    if name == "mask":
        mask = np.ones(shape, np.int64)
        mask[::2, -(shape[1] // 4) :] = 0
        return mask
    if name in ("ids", "kinds"):
        return rng.integers(0, 97 if name == "ids" else 2, shape)
    coarse = rng.standard_normal((*shape[:2], -(-shape[2] // 16), -(-shape[3] // 16)))
    coarse = coarse.repeat(16, 2).repeat(16, 3)[:, :, : shape[2], : shape[3]]
    colour = rng.standard_normal((*shape[:2], 1, 1))
    return (0.5 * colour + 0.7 * coarse + 0.7 * rng.standard_normal(shape)).astype(np.float32)


# ---- PyTorch's -------------------------------------------------------------------------------------------------------


def module(name: str, small: bool = False) -> Any:
    """A network as PyTorch has it, with the weights that its file holds."""
    import torch

    net = TORCH[name]
    source, _, factory = net.factory.partition(":")
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        torch.manual_seed(_SEED)
        built = getattr(import_module(source), factory)(**(net.small if small else net.full))
        _, sample = _sample(net, small)
        _draw(built)
        _calibrate(built, sample)
    return built.eval()


def _export(name: str, path: Path, small: bool) -> None:
    import torch

    names, sample = _sample(TORCH[name], small)
    torch.onnx.export(
        module(name, small),
        sample,
        str(path),
        opset_version=_OPSET,
        dynamo=False,
        input_names=names,
        dynamic_axes={each: {0: "N"} for each in names},
    )


def _sample(net: Net, small: bool) -> tuple[list[str], tuple[Any, ...]]:
    """Names of the inputs, and a few items: more of small ones, whose last planes are of few pixels."""
    import torch

    rng = np.random.default_rng(_SEED)
    names = ["ids", "mask", "kinds"] if net.side is None else ["image"]
    count = 16 if small else 4
    shape = (count, net.length[small]) if net.side is None else (count, 3, net.side[small], net.side[small])
    return names, tuple(torch.from_numpy(_input(name, shape, rng)) for name in names)


def _draw(net: Any) -> None:
    from torch import nn

    plain = not any(isinstance(module, nn.LayerNorm) for module in net.modules())
    for module in net.modules():
        if isinstance(module, nn.Conv2d | nn.ConvTranspose2d | nn.Linear):
            nn.init.kaiming_normal_(module.weight, nonlinearity="relu" if plain else "linear")
            module.weight.mul_(getattr(module, "gain", 1.0))
            if module.bias is not None:
                nn.init.normal_(module.bias, std=0.1)


def _calibrate(net: Any, sample: tuple[Any, ...]) -> None:
    """Gives batch normalisations the statistics of the sample, one deviation for all channels, and a shift of 1.5.

    Without the last two a random net is chaotic, as no trained one is: each layer makes what two images differ in, and
    rounding errors, a fifth larger (Yang et al., "A Mean Field Theory of Batch Normalization", 2019), and channels
    that hardly vary are blown up.
    """
    from torch import nn

    norms = [module for module in net.modules() if isinstance(module, nn.BatchNorm2d)]
    for norm in norms:
        norm.momentum = None  # the plain mean of all batches seen
        nn.init.constant_(norm.bias, 1.5)
    if norms:
        net.train()(*sample)
    for norm in norms:
        norm.running_var.fill_(norm.running_var.mean())


# ---- the onnx package's ----------------------------------------------------------------------------------------------


def _light(name: str) -> onnx.ModelProto:
    import _zoo
    from _balance import balance

    model = _zoo.light(name)
    (given,) = model.graph.input
    shape = (4, *(dim.dim_value for dim in given.type.tensor_type.shape.dim[1:]))
    return balance(model, {given.name: _input(given.name, shape, np.random.default_rng(_SEED))})
