"""Trains the demo's classifier on scikit-learn's handwritten digits and writes it into the package.

    pip install 'wavefit[cpu,torch]' scikit-learn
    python examples/digits/train.py src/wavefit/demo

The data are the 1,797 test images of the UCI set "Optical Recognition of Handwritten Digits" (CC BY 4.0), 8x8 pixels
of 0 to 16, as scikit-learn ships them. 500 of them, drawn by class with a fixed seed, are kept for testing: the demo's
accuracy is taken on those.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import torch
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch import nn

TEST = 500
EPOCHS = 60


class Digits(nn.Module):
    """Three convolutions over 1x8x8, one of them depthwise, and two linear layers: about 41,000 parameters."""

    def __init__(self) -> None:
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(1, 32, 3, padding=1, bias=False), nn.BatchNorm2d(32), nn.ReLU(),
            nn.Conv2d(32, 32, 3, padding=1, groups=32, bias=False), nn.BatchNorm2d(32), nn.ReLU(),
            nn.Conv2d(32, 48, 3, padding=1, stride=2, bias=False), nn.BatchNorm2d(48), nn.ReLU(),
        )  # fmt: skip
        self.head = nn.Sequential(
            nn.Flatten(), nn.Dropout(0.3), nn.Linear(48 * 4 * 4, 32), nn.ReLU(), nn.Linear(32, 10)
        )

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        return self.head(self.features(image))


def digits() -> nn.Module:
    """The network, untrained: what ``wavefit export train:digits`` takes."""
    torch.manual_seed(0)
    return Digits()


def main(folder: Path) -> None:
    images, labels = load_digits(return_X_y=True)
    images = (images / 16).astype(np.float32).reshape(-1, 1, 8, 8)
    split = train_test_split(images, labels.astype(np.int64), test_size=TEST, stratify=labels, random_state=0)
    images, test_images, labels, test_labels = split
    model = train(digits(), torch.from_numpy(images), torch.from_numpy(labels))
    with torch.no_grad():
        right = (model(torch.from_numpy(test_images)).argmax(1).numpy() == test_labels).mean()
    print(f"accuracy on {TEST} test images: {right:.4f}")
    np.savez_compressed(folder / "digits.npz", image=test_images, labels=test_labels)
    torch.onnx.export(
        model,
        (torch.zeros(2, 1, 8, 8),),
        folder / "digits.onnx",
        input_names=["image"],
        output_names=["scores"],
        dynamic_axes={"image": {0: "batch"}, "scores": {0: "batch"}},
        opset_version=17,
        dynamo=False,
    )


def train(model: nn.Module, images: torch.Tensor, labels: torch.Tensor) -> nn.Module:
    """AdamW with a cosine schedule; each epoch shifts the images by up to a pixel."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=0.05)
    steps = EPOCHS * -(-len(images) // 64)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    loss_of = nn.CrossEntropyLoss(label_smoothing=0.05)
    for _ in range(EPOCHS):
        for rows in torch.randperm(len(images)).split(64):
            shift = torch.randint(-1, 2, (2,)).tolist()
            loss = loss_of(model(torch.roll(images[rows], shift, (2, 3))), labels[rows])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
    return model.eval()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
