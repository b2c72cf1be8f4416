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


def _bert_base() -> tuple[Any, tuple[Any, ...]]:
    """BERT-base with a small vocabulary, 128 tokens."""
    import torch
    from transformers import BertConfig, BertModel

    base = BertConfig(vocab_size=1000)
    base._attn_implementation = "eager"
    ids = torch.ones(1, 128, dtype=torch.int64)
    return _First(BertModel(base, add_pooling_layer=False)), (ids, torch.ones_like(ids))


def _whisper() -> tuple[Any, tuple[Any, ...]]:
    import torch
    from transformers import WhisperConfig
    from transformers.models.whisper.modeling_whisper import WhisperEncoder

    sizes = {"encoder_layers": 2, "encoder_attention_heads": 4, "encoder_ffn_dim": 512}
    tiny = WhisperConfig(d_model=128, max_source_positions=100, **sizes)
    tiny._attn_implementation = "eager"
    return _First(WhisperEncoder(tiny)), (torch.randn(1, 80, 200),)


def _text(kind: str, **sizes: Any) -> Callable[[], tuple[Any, tuple[Any, ...]]]:
    """A small text network of transformers by the name of its classes; its input are the tokens."""

    def made() -> tuple[Any, tuple[Any, ...]]:
        import torch
        import transformers

        own = getattr(transformers, f"{kind}Config")(**sizes)
        own._attn_implementation = "eager"
        own.use_cache = False
        return _First(getattr(transformers, f"{kind}Model")(own)), (torch.arange(24).reshape(1, 24) + 5,)

    return made


def _seen(kind: str, shape: tuple[int, ...], **sizes: Any) -> Callable[[], tuple[Any, tuple[Any, ...]]]:
    """The same of a network of pictures or sound."""

    def made() -> tuple[Any, tuple[Any, ...]]:
        import torch
        import transformers

        own = getattr(transformers, f"{kind}Config")(**sizes)
        own._attn_implementation = "eager"
        return _First(getattr(transformers, f"{kind}Model")(own)), (torch.randn(1, *shape),)

    return made


def _layers(kind: str, *sizes: int, **options: Any) -> Callable[[], tuple[Any, tuple[Any, ...]]]:
    def made() -> tuple[Any, tuple[Any, ...]]:
        import torch

        return _First(getattr(torch.nn, kind)(*sizes, **options)), (torch.randn(20, 1, sizes[0]),)

    return made


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
    "bert_base": _bert_base,
    "resnet50_224": _vision("resnet50"),
    "whisper_encoder_2_layers": _whisper,
    "gru_bidirectional": _gru,
    "lstm_3_layers": _layers("LSTM", 64, 64, 3),
    "rnn_relu": _layers("RNN", 32, 64, nonlinearity="relu"),
}
SIDE = 96  # pixels, where a network takes any number of them
VISION = (
    "alexnet",
    "densenet121",
    "efficientnet_b0",
    "efficientnet_v2_s",
    "googlenet",
    "inception_v3",
    "mnasnet0_5",
    "mobilenet_v2",
    "mobilenet_v3_large",
    "regnet_x_400mf",
    "regnet_y_400mf",
    "resnet34",
    "resnet50",
    "resnext50_32x4d",
    "shufflenet_v2_x1_0",
    "squeezenet1_0",
    "swin_t",
    "swin_v2_t",
    "vgg11_bn",
    "convnext_tiny",
)
TIMM = {
    "botnet26t_256": 256,
    "coat_lite_tiny": 224,
    "convit_tiny": 224,
    "convmixer_768_32": 64,
    "crossvit_tiny_240": 240,
    "cs3darknet_s": SIDE,
    "cspresnet50": SIDE,
    "davit_tiny": 224,
    "deit_tiny_patch16_224": 224,
    "dla34": SIDE,
    "dpn48b": SIDE,
    "edgenext_xx_small": 128,
    "efficientformer_l1": 224,
    "efficientvit_b0": 128,
    "efficientvit_m0": 224,
    "ese_vovnet19b_dw": SIDE,
    "fastvit_t8": 128,
    "fbnetc_100": SIDE,
    "focalnet_tiny_srf": 224,
    "gernet_s": SIDE,
    "ghostnet_100": SIDE,
    "gmlp_s16_224": 224,
    "hardcorenas_a": SIDE,
    "hgnetv2_b0": SIDE,
    "hrnet_w18_small": SIDE,
    "inception_next_atto": SIDE,
    "lcnet_050": SIDE,
    "levit_128s": 224,
    "mixer_s32_224": 224,
    "mixnet_s": SIDE,
    "mnasnet_small": SIDE,
    "mobilenetv4_conv_small": SIDE,
    "mobileone_s0": SIDE,
    "mobilevitv2_050": 128,
    "nf_resnet26": SIDE,
    "pit_ti_224": 224,
    "poolformer_s12": SIDE,
    "pvt_v2_b0": SIDE,
    "regnetz_005": SIDE,
    "repghostnet_050": SIDE,
    "repvgg_a0": SIDE,
    "repvit_m0_9": 128,
    "resmlp_12_224": 224,
    "resnest14d": SIDE,
    "rexnet_100": SIDE,
    "selecsls42": SIDE,
    "semnasnet_075": SIDE,
    "sequencer2d_s": 224,
    "shvit_s1": 224,
    "skresnet18": SIDE,
    "spnasnet_100": SIDE,
    "starnet_s1": SIDE,
    "tiny_vit_5m_224": 224,
    "tinynet_e": SIDE,
    "twins_pcpvt_small": 224,
    "visformer_tiny": 224,
    "xcit_nano_12_p16_224": 224,
    "lambda_resnet26t": SIDE,
}
SMALL = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 128}
TOKENS = {**SMALL, "vocab_size": 1000}
NETWORKS.update({name: _vision(name, SIDE, SIDE) for name in VISION})
NETWORKS["alexnet"] = _vision("alexnet", 224, 224)
NETWORKS["vgg11_bn"] = _vision("vgg11_bn", 224, 224)
NETWORKS["inception_v3"] = _vision("inception_v3", 128, 128, init_weights=False)
NETWORKS["googlenet"] = _vision("googlenet", SIDE, SIDE, init_weights=False, aux_logits=False)
NETWORKS.update({name: _timm(name, side, side) for name, side in TIMM.items()})
NETWORKS.update(
    {
        "roberta_2_layers": _text("Roberta", **TOKENS),
        "electra_2_layers": _text("Electra", embedding_size=64, **TOKENS),
        "albert_2_layers": _text("Albert", embedding_size=64, **TOKENS),
        "distilbert_2_layers": _text(
            "DistilBert", vocab_size=1000, dim=64, n_layers=2, n_heads=2, hidden_dim=128
        ),
        "gpt2_2_layers": _text("GPT2", vocab_size=1000, n_embd=64, n_layer=2, n_head=2),
        "opt_2_layers": _text("OPT", ffn_dim=128, word_embed_proj_dim=64, **TOKENS),
        "llama_2_layers": _text("Llama", **TOKENS),
        "qwen2_2_layers": _text("Qwen2", num_key_value_heads=1, **TOKENS),
        "mpnet_2_layers": _text("MPNet", **TOKENS),
        "vit_2_layers": _seen("ViT", (3, 64, 64), image_size=64, **SMALL),
        "dinov2_2_layers": _seen("Dinov2", (3, 70, 70), image_size=70, patch_size=14, **SMALL),
        "segformer_b0": _seen("Segformer", (3, 64, 64)),
        "clip_vision_2_layers": _seen("CLIPVision", (3, 64, 64), image_size=64, patch_size=16, **SMALL),
        "yolos_2_layers": _seen("Yolos", (3, 64, 64), image_size=[64, 64], num_detection_tokens=10, **SMALL),
        "wav2vec2_2_layers": _seen("Wav2Vec2", (4000,), num_conv_pos_embeddings=16, **SMALL),
    }
)


def export(folder: Path, names: list[str]) -> None:
    """Networks that the packages do not make, or whose exporter fails, are named and left out."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in names or list(NETWORKS):
        if not (folder / f"{name}.onnx").exists():
            try:
                _export(folder / f"{name}.onnx", NETWORKS[name])
            except Exception as error:  # torch's, and those of every package
                (folder / f"{name}.onnx").unlink(missing_ok=True)
                print(name, "fails:", str(error).splitlines()[:1], flush=True)
                continue
        print(name, flush=True)


def _export(file: Path, network: Callable[[], tuple[Any, tuple[Any, ...]]]) -> None:
    import torch

    torch.manual_seed(0)
    module, given = network()
    module.eval()
    for part in module.modules():  # running means and variances of a trained network, not 0 and 1
        if isinstance(part, torch.nn.modules.batchnorm._BatchNorm) and part.running_var is not None:
            part.running_var.uniform_(0.5, 1.5)
    with torch.no_grad():
        torch.onnx.export(module, given, str(file), dynamo=False, opset_version=17)


if __name__ == "__main__":
    export(Path(sys.argv[1]), sys.argv[2:])
