"""Networks that Python packages bring as weights for PyTorch: their modules, exported as `.pt2` files."""

from __future__ import annotations

import sys
import types
import zipfile
from pathlib import Path
from typing import Any


def _voices(folder: Path) -> tuple[Any, tuple[Any, ...]]:
    """Resemblyzer's speaker encoder: three LSTMs of 256, a layer, a norm."""
    import torch
    from torch import nn

    class VoiceEncoder(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.lstm = nn.LSTM(40, 256, 3, batch_first=True)
            self.linear = nn.Linear(256, 256)

        def forward(self, mels: Any) -> Any:
            _, (hidden, _) = self.lstm(mels)
            raw = torch.relu(self.linear(hidden[-1]))
            return raw / torch.norm(raw, dim=1, keepdim=True)

    net = VoiceEncoder()
    held = torch.load(folder / "resemblyzer" / "pretrained.pt", map_location="cpu", weights_only=True)
    net.load_state_dict(held["model_state"], strict=False)
    return net, (torch.zeros(1, 160, 40),)


def _bats(folder: Path) -> tuple[Any, tuple[Any, ...]]:
    """BatDetect2's U-net with positions as channels and attention over time."""
    import torch

    for name in ("audioread", "soundfile"):                  # sounds are not read here
        sys.modules.setdefault(name, types.ModuleType(name))
    sys.modules["soundfile"].SoundFile = object              # type: ignore[attr-defined]
    sys.modules["audioread"].AudioFile = object              # type: ignore[attr-defined]
    sys.path.insert(0, str(folder))
    from batdetect2.detector.models import Net2DFast

    held = torch.load(
        folder / "batdetect2" / "models" / "Net2DFast_UK_same.pth.tar", map_location="cpu", weights_only=True
    )
    said = held["params"]
    net = Net2DFast(
        said["num_filters"], num_classes=len(said["class_names"]), emb_dim=said["emb_dim"],
        ip_height=said["ip_height"], resize_factor=said["resize_factor"],
    )
    net.load_state_dict(held["state_dict"])

    class Calls(torch.nn.Module):
        """Where calls are, their widths and heights, and whose they are."""

        def __init__(self) -> None:
            super().__init__()
            self.net = net

        def forward(self, spectrum: Any) -> Any:
            found = self.net(spectrum)
            return found.pred_det, found.pred_size, found.pred_class

    return Calls(), (torch.zeros(1, 1, 128, 512),)


MAKERS = {"voices": _voices, "bats": _bats}


def exported(wheel: Path, name: str, folder: Path) -> Path:
    """The network `name` of MAKERS from its package, as a file of torch.export."""
    path = folder / f"{name}.pt2"
    if not path.exists():
        import torch

        with zipfile.ZipFile(wheel) as held:
            held.extractall(folder)
        net, inputs = MAKERS[name](folder)
        torch.export.save(torch.export.export(net.eval(), inputs), path)
    return path
