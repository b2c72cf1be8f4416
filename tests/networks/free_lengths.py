"""Networks of recurrent layers with others before and behind them, by their number of steps."""

from __future__ import annotations

import numpy as np

from tests.networks.onnx_text import model, normal

ONE = np.array([1], np.int64)


def lstm(steps: int, states: int = 16, inputs: int = 8) -> bytes:
    """An LSTM between dense layers."""
    weights = {
        "before": normal(6, inputs, inputs, scale=.3), "w": normal(1, 1, 4 * states, inputs, scale=.2),
        "r": normal(2, 1, 4 * states, states, scale=.2), "b": normal(3, 1, 8 * states),
        "behind": normal(4, states, 12, scale=.3), "last": normal(5, 12, 6, scale=.3), "one": ONE,
    }
    said = f"float[{steps},1,{inputs}] x => float[{steps},1,6] y"
    return model(said, f"""m = MatMul(x, before) d = Sigmoid(m)
        rows, h, c = LSTM<hidden_size={states}>(d, w, r, b) s = Squeeze(rows, one)
        e = MatMul(s, behind) f = Tanh(e) g = MatMul(f, last) y = Relu(g)""", weights)


def conv_gru(
    steps: int, states: int = 16, inputs: int = 8, pads: str = "2,2", kernel: int = 5, channels: int = 12
) -> bytes:
    """A convolution along the steps before a GRU."""
    weights = {
        "k": normal(5, channels, inputs, kernel, scale=.2), "kb": normal(6, channels),
        "w": normal(1, 1, 3 * states, channels, scale=.2),
        "r": normal(2, 1, 3 * states, states, scale=.2), "b": normal(3, 1, 6 * states),
        "dense": normal(4, states, 6, scale=.3), "one": ONE,
    }
    said = f"float[1,{inputs},{steps}] x => float[{steps},1,6] y"
    return model(said, f"""c = Conv<pads=[{pads}]>(x, k, kb) d = Relu(c) t = Transpose<perm=[2,0,1]>(d)
        rows, h = GRU<hidden_size={states}, linear_before_reset=1>(t, w, r, b)
        s = Squeeze(rows, one) y = MatMul(s, dense)""", weights)


def pictures(steps: int, states: int = 16) -> bytes:
    """A convolution over steps and columns, as of spectra, and pooling over columns."""
    weights = {
        "k": normal(5, 3, 1, 3, 3, scale=.3), "kb": normal(6, 3), "w": normal(1, 1, 4 * states, 24, scale=.2),
        "r": normal(2, 1, 4 * states, states, scale=.2), "b": normal(3, 1, 8 * states),
        "dense": normal(4, states, 6, scale=.3), "one": ONE, "sizes": np.array([-1, 1, 24], np.int64),
    }
    said = f"float[1,1,{steps},16] x => float[{steps},1,6] y"
    return model(said, f"""c = Conv<pads=[1,1,1,1]>(x, k, kb) d = Relu(c)
        p = MaxPool<kernel_shape=[1,2], strides=[1,2]>(d) t = Transpose<perm=[2,0,1,3]>(p)
        q = Reshape(t, sizes) rows, h, cell = LSTM<hidden_size={states}>(q, w, r, b)
        s = Squeeze(rows, one) y = MatMul(s, dense)""", weights)


def both_ways(steps: int, states: int = 16, inputs: int = 8) -> bytes:
    """Both directions of an LSTM, before a dense layer."""
    weights = {
        "w": normal(1, 2, 4 * states, inputs, scale=.2), "r": normal(2, 2, 4 * states, states, scale=.2),
        "b": normal(3, 2, 8 * states), "dense": normal(4, 2 * states, 6, scale=.3),
        "sizes": np.array([0, 0, -1], np.int64),
    }
    said = f"float[{steps},1,{inputs}] x => float[{steps},1,6] y"
    return model(said, f"""rows, h, c = LSTM<hidden_size={states}, direction="bidirectional">(x, w, r, b)
        t = Transpose<perm=[0,2,1,3]>(rows) s = Reshape(t, sizes) y = MatMul(s, dense)""", weights)


def two_layers(steps: int, states: int = 16) -> bytes:
    """Two LSTMs, the second one of the first one's results and its input."""
    weights = {
        name: array for k in "12" for name, array in (
            (f"w{k}", normal(int(k), 1, 4 * states, states, scale=.2)), (f"b{k}", normal(7, 1, 8 * states)),
            (f"r{k}", normal(3 + int(k), 1, 4 * states, states, scale=.2)),
        )
    }
    said = f"float[{steps},1,{states}] x => float[{steps},1,{states}] y"
    return model(said, f"""rows, h, c = LSTM<hidden_size={states}>(x, w1, r1, b1) s = Squeeze(rows, one)
        q = Add(s, x) more, h2, c2 = LSTM<hidden_size={states}>(q, w2, r2, b2) z = Squeeze(more, one)
        y = Add(z, q)""", {**weights, "one": ONE})
