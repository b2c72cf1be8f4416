"""Exports networks of torchvision, timm, pytorchcv and transformers with random weights as ONNX files.

    python benchmarks/corpus_export.py FOLDER [NETWORK ...]

Needs those packages and onnxscript. `benchmarks/corpus.py FOLDER` measures the files.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any


def _vision(name: str, *shape: int, **options: Any) -> Callable[[], tuple[Any, tuple[Any, ...]]]:
    def made() -> tuple[Any, tuple[Any, ...]]:
        import torch
        from torchvision.models import get_model

        return get_model(name, weights=None, **options), (torch.randn(1, 3, *(shape or (224, 224))),)

    return made


def _timm(name: str, *shape: int) -> Callable[[], tuple[Any, tuple[Any, ...]]]:
    def made() -> tuple[Any, tuple[Any, ...]]:
        import timm
        import torch

        return timm.create_model(name, pretrained=False), (torch.randn(1, 3, *(shape or (224, 224))),)

    return made


def _cv(name: str, *shape: int) -> Callable[[], tuple[Any, tuple[Any, ...]]]:
    def made() -> tuple[Any, tuple[Any, ...]]:
        import torch
        from pytorchcv.model_provider import get_model

        return get_model(name, pretrained=False), (torch.randn(1, *shape),)

    return made


def _bert() -> tuple[Any, tuple[Any, ...]]:
    import torch
    from transformers import BertConfig, BertModel

    small = BertConfig(hidden_size=128, num_hidden_layers=2, num_attention_heads=2, intermediate_size=512)
    small._attn_implementation = "eager"
    ids = torch.ones(1, 32, dtype=torch.int64)
    return _First(BertModel(small, add_pooling_layer=False)), (ids, torch.ones_like(ids))


def _whisper() -> tuple[Any, tuple[Any, ...]]:
    import torch
    from transformers import WhisperConfig
    from transformers.models.whisper.modeling_whisper import WhisperEncoder

    sizes = {"encoder_layers": 2, "encoder_attention_heads": 4, "encoder_ffn_dim": 512}
    tiny = WhisperConfig(d_model=128, max_source_positions=100, **sizes)
    tiny._attn_implementation = "eager"
    return _First(WhisperEncoder(tiny)), (torch.randn(1, 80, 200),)


def _gru() -> tuple[Any, tuple[Any, ...]]:
    import torch

    return _First(torch.nn.GRU(64, 64, 2, bidirectional=True)), (torch.randn(20, 1, 64),)


def _video() -> tuple[Any, tuple[Any, ...]]:
    import torch
    from torchvision.models.video import mc3_18

    return mc3_18(weights=None), (torch.randn(1, 3, 4, 56, 56),)


def _First(module: Any) -> Any:  # noqa: N802 (makes a module)
    """A module whose only result is the first of another's."""
    import torch

    class First(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = module

        def forward(self, *given: Any) -> Any:
            return self.inner(*given)[0]

    return First()


NETWORKS: dict[str, Callable[[], tuple[Any, tuple[Any, ...]]]] = {
    "resnet18": _vision("resnet18"),
    "mobilenet_v3_small": _vision("mobilenet_v3_small"),
    "shufflenet_v2_x0_5": _vision("shufflenet_v2_x0_5"),
    "squeezenet1_1": _vision("squeezenet1_1"),
    "lraspp_mobilenet_v3": _vision("lraspp_mobilenet_v3_large", 160, 160, weights_backbone=None),
    "mc3_18": _video,
    "vit_tiny": _timm("vit_tiny_patch16_224", 224, 224),
    "convnext_atto": _timm("convnext_atto", 128, 128),
    "mobilevit_xxs": _timm("mobilevit_xxs", 128, 128),
    "efficientnet_lite0": _timm("tf_efficientnet_lite0", 128, 128),
    "alphapose_mobile": _cv("lwopenpose2d_mobilenet_cmupan_coco", 3, 96, 96),
    "bert_2_layers": _bert,
    "whisper_encoder_2_layers": _whisper,
    "gru_bidirectional": _gru,
}


def export(folder: Path, names: list[str]) -> None:
    import torch

    folder.mkdir(parents=True, exist_ok=True)
    for name in names or list(NETWORKS):
        torch.manual_seed(0)
        module, given = NETWORKS[name]()
        module.eval()
        for part in module.modules():     # running means and variances of a trained network, not 0 and 1
            if isinstance(part, torch.nn.modules.batchnorm._BatchNorm) and part.running_var is not None:
                part.running_var.uniform_(0.5, 1.5)
        with torch.no_grad():
            torch.onnx.export(
                module, given, str(folder / f"{name}.onnx"), dynamo=False, opset_version=17
            )
        print(name, flush=True)


if __name__ == "__main__":
    export(Path(sys.argv[1]), sys.argv[2:])
