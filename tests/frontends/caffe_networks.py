"""Published architectures as Caffe files with random weights, at any width."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from tests.frontends.caffe_models import layer

Shape = tuple[int, int, int]


@dataclass
class Writer:
    """A prototxt in the making, with the weights that its layers need and the sizes of its blobs."""

    image: Shape
    width: float = 1.0
    text: str = ""
    held: dict[str, list[np.ndarray]] = field(default_factory=dict)
    sizes: dict[str, Shape] = field(default_factory=dict)
    rng: np.random.Generator = field(default_factory=lambda: np.random.default_rng(0))

    def __post_init__(self) -> None:
        c, h, w = self.sizes["data"] = self.image
        self.text = f'name: "net"\ninput: "data"\ninput_shape {{ dim: 1 dim: {c} dim: {h} dim: {w} }}\n'

    def wide(self, channels: int) -> int:
        """The channels at this network's width: a multiple of four."""
        return max(4, int(channels * self.width) // 4 * 4)

    def add(self, kind: str, bottoms: str, tops: str, options: str = "", name: str = "") -> str:
        """A layer that keeps its first blob's sizes."""
        self.text += layer(kind, bottoms, tops, options, name)
        for top in tops.split():
            self.sizes[top] = self.sizes[bottoms.split()[0]]
        return tops

    def normal(self, gain: float, *shape: int) -> np.ndarray:
        return (self.rng.standard_normal(shape) * gain).astype(np.float32)

    def conv(
        self, x: str, top: str, channels: int, k: int, s: int = 1, p: int = 0, group: int = 1, d: int = 1
    ) -> str:
        c, h, w = self.sizes[x]
        options = f"num_output: {channels} kernel_size: {k} stride: {s} pad: {p} group: {group} dilation: {d}"
        self.add("Convolution", x, top, f"convolution_param {{ {options} }}")
        gain = math.sqrt(2 * group / (c * k * k))
        self.held[top] = [self.normal(gain, channels, c // group, k, k), self.normal(0.1, channels)]
        reach = d * (k - 1) + 1
        self.sizes[top] = (channels, (h + 2 * p - reach) // s + 1, (w + 2 * p - reach) // s + 1)
        return top

    def deconv(self, x: str, top: str, k: int, s: int) -> str:
        """Each channel on its own, as networks that learn to enlarge begin."""
        c, h, w = self.sizes[x]
        options = f"num_output: {c} kernel_size: {k} stride: {s} group: {c} bias_term: false"
        self.add("Deconvolution", x, top, f"convolution_param {{ {options} }}")
        self.held[top] = [self.normal(s / k, c, 1, k, k)]
        self.sizes[top] = (c, (h - 1) * s + k, (w - 1) * s + k)
        return top

    def dense(self, x: str, top: str, outputs: int) -> str:
        inputs = math.prod(self.sizes[x])
        self.add("InnerProduct", x, top, f"inner_product_param {{ num_output: {outputs} }}")
        self.held[top] = [self.normal(math.sqrt(2 / inputs), outputs, inputs), self.normal(0.1, outputs)]
        self.sizes[top] = (outputs, 1, 1)
        return top

    def norm(self, x: str, top: str = "") -> str:
        """BatchNorm and Scale, in place where no other blob is named."""
        made, c = top or x, self.sizes[x][0]
        self.add("BatchNorm", x, made, "", f"{made}/bn")
        self.add("Scale", made, made, "scale_param { bias_term: true }", f"{made}/scale")
        spread = self.rng.uniform(0.5, 1.5, c).astype(np.float32)
        self.held[f"{made}/bn"] = [self.normal(0.2, c), spread, np.ones(1, np.float32)]
        self.held[f"{made}/scale"] = [spread, self.normal(0.1, c)]
        return made

    def relu(self, x: str) -> str:
        return self.add("ReLU", x, x, "", f"{x}/relu")

    def prelu(self, x: str) -> str:
        self.held[f"{x}/prelu"] = [self.rng.uniform(0.1, 0.4, self.sizes[x][0]).astype(np.float32)]
        return self.add("PReLU", x, x, "", f"{x}/prelu")

    def pool(self, x: str, top: str, k: int, s: int, p: int = 0, kind: str = "MAX") -> str:
        c, *image = self.sizes[x]
        self.add("Pooling", x, top, f"pooling_param {{ pool: {kind} kernel_size: {k} stride: {s} pad: {p} }}")
        counts = [-(-(size + 2 * p - k) // s) + 1 for size in image]
        counts = [n - (p > 0 and (n - 1) * s >= size + p) for n, size in zip(counts, image, strict=True)]
        self.sizes[top] = (c, counts[0], counts[1])
        return top

    def spread(self, x: str, top: str) -> str:
        self.add("Pooling", x, top, "pooling_param { pool: AVE global_pooling: true }")
        self.sizes[top] = (self.sizes[x][0], 1, 1)
        return top

    def concat(self, tops: list[str], top: str) -> str:
        self.add("Concat", " ".join(tops), top)
        self.sizes[top] = (sum(self.sizes[t][0] for t in tops), *self.sizes[tops[0]][1:])
        return top

    def sum(self, a: str, b: str, top: str) -> str:
        return self.add("Eltwise", f"{a} {b}", top, "eltwise_param { operation: SUM }")

    def softmax(self, x: str) -> str:
        return self.add("Softmax", x, "prob")


def alexnet(net: Writer) -> None:
    """Krizhevsky et al. 2012, as in Caffe's reference model: groups, norms across channels, dense layers."""
    lrn = "lrn_param { local_size: 5 alpha: 0.0001 beta: 0.75 }"
    x = net.relu(net.conv("data", "conv1", net.wide(96), 11, 4))
    x = net.add("LRN", net.pool(x, "pool1", 3, 2), "norm1", lrn)
    x = net.relu(net.conv(x, "conv2", net.wide(256), 5, 1, 2, 2))
    x = net.add("LRN", net.pool(x, "pool2", 3, 2), "norm2", lrn)
    x = net.relu(net.conv(x, "conv3", net.wide(384), 3, 1, 1))
    x = net.relu(net.conv(x, "conv4", net.wide(384), 3, 1, 1, 2))
    x = net.relu(net.conv(x, "conv5", net.wide(256), 3, 1, 1, 2))
    x = net.pool(x, "pool5", 3, 2)
    for name in ("fc6", "fc7"):
        x = net.relu(net.dense(x, name, net.wide(4096)))
        x = net.add("Dropout", x, x, "dropout_param { dropout_ratio: 0.5 }", f"{name}/drop")
    net.softmax(net.dense(x, "fc8", net.wide(1000)))


def googlenet(net: Writer) -> None:
    """Szegedy et al. 2014: nine inception blocks."""
    lrn = "lrn_param { local_size: 5 alpha: 0.0001 beta: 0.75 }"
    x = net.pool(net.relu(net.conv("data", "conv1", net.wide(64), 7, 2, 3)), "pool1", 3, 2)
    x = net.add("LRN", x, "norm1", lrn)
    x = net.relu(net.conv(x, "reduce", net.wide(64), 1))
    x = net.relu(net.conv(x, "conv2", net.wide(192), 3, 1, 1))
    x = net.pool(net.add("LRN", x, "norm2", lrn), "pool2", 3, 2)
    blocks = {
        "3a": (64, 96, 128, 16, 32, 32), "3b": (128, 128, 192, 32, 96, 64),
        "4a": (192, 96, 208, 16, 48, 64), "4b": (160, 112, 224, 24, 64, 64),
        "4c": (128, 128, 256, 24, 64, 64), "4d": (112, 144, 288, 32, 64, 64),
        "4e": (256, 160, 320, 32, 128, 128), "5a": (256, 160, 320, 32, 128, 128),
        "5b": (384, 192, 384, 48, 128, 128),
    }
    for name, (a, b1, b, c1, c, d) in blocks.items():
        if name in ("4a", "5a"):
            x = net.pool(x, f"{name}/before", 3, 2)
        pooled = net.pool(x, f"{name}/pool", 3, 1, 1)
        first = net.relu(net.conv(x, f"{name}/3r", net.wide(b1), 1))
        second = net.relu(net.conv(x, f"{name}/5r", net.wide(c1), 1))
        parts = [
            net.relu(net.conv(x, f"{name}/1", net.wide(a), 1)),
            net.relu(net.conv(first, f"{name}/3", net.wide(b), 3, 1, 1)),
            net.relu(net.conv(second, f"{name}/5", net.wide(c), 5, 1, 2)),
            net.relu(net.conv(pooled, f"{name}/p", net.wide(d), 1)),
        ]
        x = net.concat(parts, f"{name}/out")
    net.softmax(net.dense(net.spread(x, "pool5"), "classes", net.wide(1000)))


def squeezenet(net: Writer) -> None:
    """Iandola et al. 2016, version 1.1: fire blocks."""
    x = net.pool(net.relu(net.conv("data", "conv1", net.wide(64), 3, 2)), "pool1", 3, 2)
    for i, (few, many) in enumerate(
        [(16, 64), (16, 64), (32, 128), (32, 128), (48, 192), (48, 192), (64, 256), (64, 256)], 2
    ):
        squeezed = net.relu(net.conv(x, f"fire{i}/squeeze", net.wide(few), 1))
        parts = [
            net.relu(net.conv(squeezed, f"fire{i}/expand{k}", net.wide(many), k, 1, k // 2)) for k in (1, 3)
        ]
        x = net.concat(parts, f"fire{i}/concat")
        x = net.pool(x, f"pool{i}", 3, 2) if i in (3, 5) else x
    net.softmax(net.spread(net.relu(net.conv(x, "conv10", net.wide(1000), 1)), "pool10"))


def mobilenet(net: Writer) -> None:
    """Howard et al. 2017: depthwise convolutions as groups, norms in place."""
    x = net.relu(net.norm(net.conv("data", "conv1", net.wide(32), 3, 2, 1)))
    plan = [(64, 1), (128, 2), (128, 1), (256, 2), (256, 1), (512, 2), *[(512, 1)] * 5, (1024, 2), (1024, 1)]
    for i, (channels, stride) in enumerate(plan):
        c = net.sizes[x][0]
        x = net.relu(net.norm(net.conv(x, f"dw{i}", c, 3, stride, 1, c)))
        x = net.relu(net.norm(net.conv(x, f"pw{i}", net.wide(channels), 1)))
    net.softmax(net.conv(net.spread(x, "pool"), "classes", net.wide(1000), 1))


def resnet18(net: Writer) -> None:
    """He et al. 2015: sums with a projection where sizes change."""
    x = net.relu(net.norm(net.conv("data", "conv1", net.wide(64), 7, 2, 3)))
    x = net.pool(x, "pool1", 3, 2)
    for i, channels in enumerate((64, 128, 256, 512)):
        for j in range(2):
            name, stride = f"res{i}{j}", 2 if i and not j else 1
            wide = net.wide(channels)
            y = net.relu(net.norm(net.conv(x, f"{name}/a", wide, 3, stride, 1)))
            y = net.norm(net.conv(y, f"{name}/b", wide, 3, 1, 1))
            short = net.norm(net.conv(x, f"{name}/s", wide, 1, stride)) if not j else x
            x = net.relu(net.sum(short, y, name))
    net.softmax(net.dense(net.spread(x, "pool5"), "classes", net.wide(1000)))


def densenet(net: Writer) -> None:
    """Huang et al. 2016, 121 layers: norms in front of convolutions, every block reads all before it."""
    growth = net.wide(32)
    x = net.relu(net.norm(net.conv("data", "conv1", 2 * growth, 7, 2, 3)))
    x = net.pool(x, "pool1", 3, 2, 1)
    for i, count in enumerate((6, 12, 24, 16)):
        for j in range(count):
            y = net.relu(net.norm(x, f"{i}/{j}/in"))
            y = net.relu(net.norm(net.conv(y, f"{i}/{j}/x1", 4 * growth, 1)))
            x = net.concat([x, net.conv(y, f"{i}/{j}/x2", growth, 3, 1, 1)], f"{i}/{j}")
        if i < 3:
            x = net.relu(net.norm(x, f"{i}/between"))
            x = net.conv(x, f"{i}/half", net.sizes[x][0] // 2, 1)
            x = net.pool(x, f"{i}/pool", 2, 2, 0, "AVE")
    x = net.relu(net.norm(x, "last"))
    net.softmax(net.conv(net.spread(x, "pool5"), "classes", net.wide(1000), 1))


def fcn8(net: Writer) -> None:
    """Long et al. 2015 on VGG-16: scores of three scales, enlarged, cropped and summed."""
    x, kept = "data", {}
    for i, (channels, count) in enumerate([(64, 2), (128, 2), (256, 3), (512, 3), (512, 3)], 1):
        for j in range(count):
            pad = 100 if (i, j) == (1, 0) else 1
            x = net.relu(net.conv(x, f"conv{i}_{j + 1}", net.wide(channels), 3, 1, pad))
        x = kept[i] = net.pool(x, f"pool{i}", 2, 2)
    x = net.relu(net.conv(x, "fc6", net.wide(4096), 7))
    x = net.add("Dropout", x, x, "", "drop6")
    x = net.relu(net.conv(x, "fc7", net.wide(4096), 1))
    x = net.deconv(net.conv(x, "score", 21, 1), "up2", 4, 2)
    for i, offset in ((4, 5), (3, 9)):
        side = net.conv(kept[i], f"score{i}", 21, 1)
        cut = net.add("Crop", f"{side} {x}", f"crop{i}", f"crop_param {{ axis: 2 offset: {offset} }}")
        net.sizes[cut] = net.sizes[x]
        x = net.sum(x, cut, f"fuse{i}")
        x = net.deconv(x, f"up{i}", 4 if i == 4 else 16, 2 if i == 4 else 8)
    net.add("Crop", f"{x} data", "cut", "crop_param { axis: 2 offset: 31 }")


def sphereface(net: Writer) -> None:
    """Liu et al. 2017, 20 layers: PReLU and sums, an embedding of a face."""
    x = "data"
    for i, (channels, blocks) in enumerate([(64, 1), (128, 2), (256, 4), (512, 1)], 1):
        x = net.prelu(net.conv(x, f"conv{i}", net.wide(channels), 3, 2, 1))
        for j in range(blocks):
            y = net.prelu(net.conv(x, f"conv{i}_{j}a", net.wide(channels), 3, 1, 1))
            y = net.prelu(net.conv(y, f"conv{i}_{j}b", net.wide(channels), 3, 1, 1))
            x = net.sum(x, y, f"res{i}_{j}")
    net.dense(x, "fc5", net.wide(512))


def mtcnn(net: Writer) -> None:
    """Zhang et al. 2016, the last of the three networks: a face or none, its box and landmarks."""
    x = net.pool(net.prelu(net.conv("data", "conv1", net.wide(32), 3)), "pool1", 3, 2)
    x = net.pool(net.prelu(net.conv(x, "conv2", net.wide(64), 3)), "pool2", 3, 2)
    x = net.pool(net.prelu(net.conv(x, "conv3", net.wide(64), 3)), "pool3", 2, 2)
    x = net.prelu(net.conv(x, "conv4", net.wide(128), 2))
    x = net.prelu(net.dense(x, "conv5", net.wide(256)))
    face, _, _ = net.dense(x, "face", 2), net.dense(x, "box", 4), net.dense(x, "landmarks", 10)
    net.softmax(face)


def pspnet(net: Writer) -> None:
    """Zhao et al. 2017: dilated residual blocks, pooling into four grids, enlarged and joined."""
    x = net.pool(net.relu(net.norm(net.conv("data", "conv1", net.wide(64), 3, 2, 1))), "pool1", 3, 2, 1)
    for i, (channels, stride, dilation) in enumerate([(256, 1, 1), (512, 2, 1), (1024, 1, 2), (2048, 1, 4)]):
        few, many = net.wide(channels // 4), net.wide(channels)
        y = net.relu(net.norm(net.conv(x, f"{i}/a", few, 1, stride)))
        y = net.relu(net.norm(net.conv(y, f"{i}/b", few, 3, 1, dilation, 1, dilation)))
        y = net.norm(net.conv(y, f"{i}/c", many, 1))
        x = net.relu(net.sum(net.norm(net.conv(x, f"{i}/s", many, 1, stride)), y, f"{i}"))
    parts, (c, high, wide) = [x], net.sizes[x]
    grow = f"interp_param {{ height: {high} width: {wide} }}"
    for bins in (1, 2, 3, 6):
        kernel, stride = high // bins + (high % bins > 0), high // bins
        y = net.pool(x, f"grid{bins}", kernel, stride, 0, "AVE")
        y = net.relu(net.norm(net.conv(y, f"grid{bins}/conv", c // 4, 1)))
        made = net.add("Interp", y, f"grid{bins}/up", grow)
        net.sizes[made] = (c // 4, high, wide)
        parts.append(made)
    x = net.relu(net.norm(net.conv(net.concat(parts, "joined"), "conv5", net.wide(512), 3, 1, 1)))
    net.add("Interp", net.conv(x, "classes", 19, 1), "up", "interp_param { zoom_factor: 8 }")


def faceboxes(net: Writer) -> None:
    """Zhang et al. 2017: both signs of a convolution, inception blocks, boxes of three scales (SSD)."""
    x = "data"
    for i, (channels, k, s) in enumerate([(24, 7, 4), (64, 5, 2)], 1):
        x = net.norm(net.conv(x, f"conv{i}", net.wide(channels), k, s, k // 2))
        minus = net.add("Power", x, f"conv{i}/minus", "power_param { scale: -1 }")
        x = net.relu(net.concat([x, minus], f"conv{i}/both"))
        x = net.pool(x, f"pool{i}", 3, 2)
    few, many = net.wide(24), net.wide(32)

    def unit(bottom: str, top: str, channels: int, k: int, s: int = 1) -> str:
        return net.relu(net.norm(net.conv(bottom, top, channels, k, s, k // 2)))

    for i in range(3):
        small = unit(x, f"{i}/3r", few, 1)
        large = unit(unit(x, f"{i}/5r", few, 1), f"{i}/5", many, 3)
        pooled = net.pool(x, f"{i}/pool", 3, 1, 1, "AVE")
        parts = [unit(x, f"{i}/1", many, 1), unit(pooled, f"{i}/p", many, 1), unit(small, f"{i}/3", many, 3)]
        x = net.concat([*parts, unit(large, f"{i}/55", many, 3)], f"inception{i}")
    scales = {"inception2": [32, 64, 128]}
    for name, side in (("conv3", 256), ("conv4", 512)):
        x = unit(unit(x, f"{name}_1", net.wide(128), 1), f"{name}_2", net.wide(256), 3, 2)
        scales[x] = [side]
    found: dict[str, list[str]] = {"loc": [], "conf": [], "prior": []}
    for name, sides in scales.items():
        for kind, size in (("loc", 4), ("conf", 2)):
            y = net.conv(name, f"{name}/{kind}", len(sides) * size, 3, 1, 1)
            net.held[y][0] *= np.float32(0.3)
            y = net.add("Permute", y, f"{y}/p", "permute_param { order: 0 order: 2 order: 3 order: 1 }")
            found[kind].append(net.add("Flatten", y, f"{y}/f"))
        variance = "variance: 0.1 variance: 0.1 variance: 0.2 variance: 0.2"
        rows = " ".join(f"min_size: {side}" for side in sides)
        options = f"prior_box_param {{ {rows} clip: false {variance} offset: 0.5 }}"
        found["prior"].append(net.add("PriorBox", f"{name} data", f"{name}/prior", options))
    for kind, names in found.items():
        axis = 2 if kind == "prior" else 1
        net.add("Concat", " ".join(names), kind, f"concat_param {{ axis: {axis} }}")
    net.add("Reshape", "conf", "rows", "reshape_param { shape { dim: 0 dim: -1 dim: 2 } }")
    net.add("Softmax", "rows", "soft", "softmax_param { axis: 2 }")
    net.add("Flatten", "soft", "scores")
    options = (
        "num_classes: 2 share_location: true background_label_id: 0 code_type: CENTER_SIZE "
        "nms_param { nms_threshold: 0.3 top_k: 400 } keep_top_k: 200 confidence_threshold: 0.3"
    )
    net.add("DetectionOutput", "loc scores prior", "found", f"detection_output_param {{ {options} }}")


def shufflenet(net: Writer) -> None:
    """Zhang et al. 2017, three groups: channels shuffled between convolutions of groups."""
    x = net.pool(net.relu(net.norm(net.conv("data", "conv1", 24, 3, 2, 1))), "pool1", 3, 2)
    for i, (channels, count) in enumerate([(240, 4), (480, 8), (960, 4)]):
        wide = max(12, int(channels * net.width) // 12 * 12)
        for j in range(count):
            few = max(3, wide // 12 * 3)
            stride, made = (1 if j else 2), wide if j else wide - net.sizes[x][0]
            if made <= 0:
                wide, made = wide + net.sizes[x][0], wide
            y = net.relu(net.norm(net.conv(x, f"{i}/{j}/a", few, 1, group=1 if i + j == 0 else 3)))
            y = net.add("ShuffleChannel", y, f"{i}/{j}/mixed", "shuffle_channel_param { group: 3 }")
            y = net.norm(net.conv(y, f"{i}/{j}/dw", few, 3, stride, 1, few))
            made = made // 3 * 3
            y = net.norm(net.conv(y, f"{i}/{j}/b", made, 1, group=3))
            if j:
                x = net.relu(net.sum(x, y, f"{i}/{j}"))
            else:
                x = net.relu(net.concat([net.pool(x, f"{i}/short", 3, 2, 0, "AVE"), y], f"{i}/{j}"))
    net.dense(net.spread(x, "pool5"), "classes", net.wide(1000))


# Each architecture with the image it was published for, and a small one for the tests.
NETWORKS: dict[str, tuple[Callable[[Writer], None], Shape, Shape]] = {
    "AlexNet": (alexnet, (3, 227, 227), (3, 99, 99)),
    "GoogLeNet": (googlenet, (3, 224, 224), (3, 64, 64)),
    "SqueezeNet 1.1": (squeezenet, (3, 227, 227), (3, 63, 63)),
    "MobileNet": (mobilenet, (3, 224, 224), (3, 64, 64)),
    "ResNet-18": (resnet18, (3, 224, 224), (3, 64, 64)),
    "DenseNet-121": (densenet, (3, 224, 224), (3, 64, 64)),
    "FCN-8s": (fcn8, (3, 320, 320), (3, 40, 40)),
    "SphereFace-20": (sphereface, (3, 112, 96), (3, 56, 48)),
    "MTCNN O-Net": (mtcnn, (3, 48, 48), (3, 48, 48)),
    "PSPNet": (pspnet, (3, 185, 185), (3, 89, 89)),
    "FaceBoxes": (faceboxes, (3, 512, 512), (3, 128, 128)),
    "ShuffleNet": (shufflenet, (3, 224, 224), (3, 64, 64)),
}


def network(name: str, full: bool = False) -> Writer:
    write, published, small = NETWORKS[name]
    net = Writer(published if full else small, 1.0 if full else 0.125)
    write(net)
    return net
