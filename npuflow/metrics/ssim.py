"""Structural similarity of images against the float model's: 1 where they are equal; needs no labels."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

import numpy as np
import numpy.typing as npt

from npuflow.base.errors import DataError
from npuflow.base.tables import Range
from npuflow.metrics import METRICS, Metric, Outputs
from npuflow.metrics._ragged import each, judged_name

Floats = npt.NDArray[np.float64]


@METRICS.entry
@dataclass(frozen=True)
class Ssim(Metric):
    """Wang et al. 2004 with a square window, the sample covariance and the constants 0.01 and 0.03: the mean
    over places, channels and samples of one output [..., h, w] (default: the first). `peak` as in `psnr`."""

    needs_labels: ClassVar[bool] = False
    peak: Annotated[float, Range(0, None)] = 0.0
    window: Annotated[int, Range(3, None)] = 7
    output: str = ""

    def __call__(self, outputs: Outputs, reference: Outputs, labels: list[Any] | None) -> dict[str, float]:
        name = judged_name(outputs, self.output)
        found = [self._similar(*pair) for pair in each(reference[name], outputs[name])]
        return {"ssim": float(np.mean(found)) if found else 0.0}

    def _similar(self, real: npt.NDArray[Any], mine: npt.NDArray[Any]) -> float:
        if real.ndim < 2 or min(real.shape[-2:]) < self.window:
            raise DataError(
                f"an output of shape {list(real.shape)} is no image of {self.window} pixels or more",
                hint="[evaluate.ssim] output names another output, window a smaller window",
                code="NF-METRIC-020",
            )
        peak = self.peak or float(np.ptp(real)) or 1.0
        images = np.broadcast_to(real, real.shape).reshape(-1, *real.shape[-2:])
        pairs = zip(images, mine.reshape(images.shape), strict=True)
        return float(np.mean([self._image(a.astype(float), b.astype(float), peak) for a, b in pairs]))

    def _image(self, a: Floats, b: Floats, peak: float) -> float:
        count = self.window**2
        sample = count / (count - 1)
        mean_a, mean_b = self._mean(a), self._mean(b)
        var_a = sample * (self._mean(a * a) - mean_a**2)
        var_b = sample * (self._mean(b * b) - mean_b**2)
        both = sample * (self._mean(a * b) - mean_a * mean_b)
        c1, c2 = (0.01 * peak) ** 2, (0.03 * peak) ** 2
        above = (2 * mean_a * mean_b + c1) * (2 * both + c2)
        return float((above / ((mean_a**2 + mean_b**2 + c1) * (var_a + var_b + c2))).mean())

    def _mean(self, image: Floats) -> Floats:
        """The mean of every window that lies whole in the image."""
        windows = np.lib.stride_tricks.sliding_window_view(image, (self.window, self.window))
        return np.asarray(windows.mean((2, 3)))
