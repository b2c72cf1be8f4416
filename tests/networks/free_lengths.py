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


def _gru(inputs: int, states: int, name: str = "") -> dict[str, np.ndarray]:
    return {
        f"w{name}": normal(1, 1, 3 * states, inputs, scale=.2),
        f"r{name}": normal(2, 1, 3 * states, states, scale=.2), f"b{name}": normal(3, 1, 6 * states),
    }


def two_convs(steps: int, states: int = 16, inputs: int = 8, channels: int = 12) -> bytes:
    """Two convolutions that look back, and what the first one makes once more, before a GRU."""
    weights = {
        "k": normal(5, channels, inputs, 4, scale=.2), "kb": normal(6, channels),
        "k2": normal(7, channels, channels, 3, scale=.2), "kb2": normal(8, channels),
        **_gru(channels, states), "dense": normal(4, states, 6, scale=.3), "one": ONE,
    }
    said = f"float[1,{inputs},{steps}] x => float[{steps},1,6] y"
    return model(said, f"""c = Conv<pads=[3,0]>(x, k, kb) d = Relu(c)
        e = Conv<pads=[4,0], dilations=[2]>(d, k2, kb2) f = Tanh(e) g = Add(d, f)
        t = Transpose<perm=[2,0,1]>(g)
        rows, h = GRU<hidden_size={states}, linear_before_reset=1>(t, w, r, b)
        s = Squeeze(rows, one) y = MatMul(s, dense)""", weights)


def dense_conv(steps: int, states: int = 16, inputs: int = 8, channels: int = 12) -> bytes:
    """A layer that gives zeros of zeros, and a window over it that looks both ways, before a GRU."""
    weights = {
        "first": normal(9, inputs, channels, scale=.3), "k": normal(5, channels, channels, 5, scale=.2),
        "kb": normal(6, channels), **_gru(channels, states), "dense": normal(4, states, 6, scale=.3),
        "one": ONE,
    }
    said = f"float[{steps},1,{inputs}] x => float[{steps},1,6] y"
    return model(said, f"""m = MatMul(x, first) n = Tanh(m) o = Transpose<perm=[1,2,0]>(n)
        c = Conv<pads=[2,2]>(o, k, kb) d = Relu(c) t = Transpose<perm=[2,0,1]>(d)
        rows, h = GRU<hidden_size={states}, linear_before_reset=1>(t, w, r, b)
        s = Squeeze(rows, one) y = MatMul(s, dense)""", weights)


def conv_between(steps: int, states: int = 16, inputs: int = 8) -> bytes:
    """A window that looks both ways, over what a GRU makes, before another GRU."""
    weights = {
        "k": normal(5, states, states, 5, scale=.2), "kb": normal(6, states), **_gru(inputs, states),
        **_gru(states, states, "2"), "dense": normal(4, states, 6, scale=.3), "one": ONE,
    }
    said = f"float[{steps},1,{inputs}] x => float[{steps},1,6] y"
    return model(said, f"""rows, h = GRU<hidden_size={states}, linear_before_reset=1>(x, w, r, b)
        s = Squeeze(rows, one) o = Transpose<perm=[1,2,0]>(s)
        c = Conv<pads=[2,2]>(o, k, kb) d = Relu(c) t = Transpose<perm=[2,0,1]>(d)
        more, h2 = GRU<hidden_size={states}, linear_before_reset=1>(t, w2, r2, b2)
        z = Squeeze(more, one) y = MatMul(z, dense)""", weights)


def pooled(steps: int, states: int = 16, inputs: int = 8, channels: int = 12) -> bytes:
    """The largest and the mean of some steps, of a convolution, before a GRU."""
    weights = {
        "k": normal(5, channels, inputs, 3, scale=.2), "kb": normal(6, channels), **_gru(channels, states),
        "dense": normal(4, states, 6, scale=.3), "one": ONE,
    }
    said = f"float[1,{inputs},{steps}] x => float[{steps},1,6] y"
    return model(said, f"""c = Conv<pads=[1,1]>(x, k, kb) d = Relu(c)
        m = MaxPool<kernel_shape=[3], pads=[2,0]>(d)
        a = AveragePool<kernel_shape=[4], pads=[3,0]>(m) t = Transpose<perm=[2,0,1]>(a)
        rows, h = GRU<hidden_size={states}, linear_before_reset=1>(t, w, r, b)
        s = Squeeze(rows, one) y = MatMul(s, dense)""", weights)


def skipping(steps: int, states: int = 16, ahead: int = 12) -> bytes:
    """Twice, a window that looks ahead over the sum of what a GRU makes and of what it reads. The layer
    before them gives no zeros of zeros."""
    weights = {
        "first": normal(9, states, states, scale=.3), "more": normal(10, states),
        **_gru(states, states), **_gru(states, states, "2"), "dense": normal(4, states, 6, scale=.3),
        "one": ONE,
        **{f"k{n}": normal(5, states, states, ahead + 1, scale=.2) for n in "12"},
        **{f"kb{n}": normal(6, states) for n in "12"},
    }
    said = f"float[{steps},1,{states}] x => float[{steps},1,6] y"
    return model(said, f"""m = MatMul(x, first) n = Add(m, more) v = Tanh(n)
        rows, h = GRU<hidden_size={states}, linear_before_reset=1>(v, w, r, b)
        s = Squeeze(rows, one) q = Add(s, v) o = Transpose<perm=[1,2,0]>(q)
        c = Conv<pads=[0,{ahead}]>(o, k1, kb1) d = Relu(c) t = Transpose<perm=[2,0,1]>(d)
        rows2, h2 = GRU<hidden_size={states}, linear_before_reset=1>(t, w2, r2, b2)
        s2 = Squeeze(rows2, one) q2 = Add(s2, t) o2 = Transpose<perm=[1,2,0]>(q2)
        c2 = Conv<pads=[0,{ahead}]>(o2, k2, kb2) d2 = Relu(c2) t2 = Transpose<perm=[2,0,1]>(d2)
        y = MatMul(t2, dense)""", weights)


def mixing(steps: int, states: int = 16, inputs: int = 8, channels: int = 12) -> bytes:
    """Channels that are weighed by their means over all steps, before a GRU."""
    weights = {
        "k": normal(5, channels, inputs, 3, scale=.2), "kb": normal(6, channels), **_gru(channels, states),
        "dense": normal(4, states, 6, scale=.3), "one": ONE,
    }
    said = f"float[1,{inputs},{steps}] x => float[{steps},1,6] y"
    return model(said, f"""c = Conv<pads=[1,1]>(x, k, kb) m = ReduceMean<axes=[2]>(c) e = Sigmoid(m)
        g = Mul(c, e) t = Transpose<perm=[2,0,1]>(g)
        rows, h = GRU<hidden_size={states}, linear_before_reset=1>(t, w, r, b)
        s = Squeeze(rows, one) y = MatMul(s, dense)""", weights)


def conv_stack(steps: int, states: int = 16, inputs: int = 8, channels: int = 12) -> bytes:
    """Two convolutions that look both ways, before a GRU."""
    weights = {
        "k": normal(5, channels, inputs, 5, scale=.2), "kb": normal(6, channels),
        "k2": normal(7, channels, channels, 3, scale=.2), "kb2": normal(8, channels),
        **_gru(channels, states), "dense": normal(4, states, 6, scale=.3), "one": ONE,
    }
    said = f"float[1,{inputs},{steps}] x => float[{steps},1,6] y"
    return model(said, f"""c = Conv<pads=[2,2]>(x, k, kb) d = Relu(c)
        e = Conv<pads=[1,1]>(d, k2, kb2) f = Relu(e) t = Transpose<perm=[2,0,1]>(f)
        rows, h = GRU<hidden_size={states}, linear_before_reset=1>(t, w, r, b)
        s = Squeeze(rows, one) y = MatMul(s, dense)""", weights)


def strided_gru(
    steps: int, states: int = 16, inputs: int = 8, channels: int = 12, pads: str = "2,2"
) -> bytes:
    """A convolution that goes on by two steps, before a GRU."""
    weights = {
        "k": normal(5, channels, inputs, 5, scale=.2), "kb": normal(6, channels), **_gru(channels, states),
        "dense": normal(4, states, 6, scale=.3), "one": ONE,
    }
    said = f"float[1,{inputs},{steps}] x => float[n,1,6] y"
    return model(said, f"""c = Conv<pads=[{pads}], strides=[2]>(x, k, kb) d = Relu(c)
        t = Transpose<perm=[2,0,1]>(d)
        rows, h = GRU<hidden_size={states}, linear_before_reset=1>(t, w, r, b)
        s = Squeeze(rows, one) y = MatMul(s, dense)""", weights)


def strided_lstm(steps: int, states: int = 16, inputs: int = 8, channels: int = 12) -> bytes:
    """Two convolutions that go on by two steps each, before both directions of an LSTM."""
    weights = {
        "k": normal(5, channels, inputs, 3, scale=.3), "kb": normal(6, channels),
        "k2": normal(7, channels, channels, 3, scale=.2), "kb2": normal(8, channels),
        "w": normal(1, 2, 4 * states, channels, scale=.2), "r": normal(2, 2, 4 * states, states, scale=.2),
        "b": normal(3, 2, 8 * states), "dense": normal(4, 2 * states, 6, scale=.3),
        "sizes": np.array([0, 0, -1], np.int64),
    }
    said = f"float[1,{inputs},{steps}] x => float[n,1,6] y"
    return model(said, f"""c = Conv<pads=[1,1], strides=[2]>(x, k, kb) d = Relu(c)
        e = Conv<pads=[1,1], strides=[2]>(d, k2, kb2) f = Relu(e) t = Transpose<perm=[2,0,1]>(f)
        rows, h, cell = LSTM<hidden_size={states}, direction="bidirectional">(t, w, r, b)
        q = Transpose<perm=[0,2,1,3]>(rows) s = Reshape(q, sizes) y = MatMul(s, dense)""", weights)


def strided_pool(steps: int, states: int = 16, inputs: int = 8, channels: int = 12) -> bytes:
    """The largest of two steps and the mean of three of these, of a convolution, before two LSTMs, between
    which a window looks both ways."""
    weights = {
        "k": normal(5, channels, inputs, 3, scale=.3), "kb": normal(6, channels),
        "w": normal(1, 1, 4 * states, channels, scale=.2), "r": normal(2, 1, 4 * states, states, scale=.2),
        "b": normal(3, 1, 8 * states), "k2": normal(7, channels, states, 5, scale=.2),
        "kb2": normal(8, channels), "dense": normal(4, states, 6, scale=.3), "one": ONE,
    }
    said = f"float[1,{inputs},{steps}] x => float[n,1,6] y"
    return model(said, f"""c = Conv<pads=[1,1]>(x, k, kb) d = Relu(c)
        m = MaxPool<kernel_shape=[2], strides=[2]>(d)
        a = AveragePool<kernel_shape=[3], strides=[3]>(m) t = Transpose<perm=[2,0,1]>(a)
        rows, h, cell = LSTM<hidden_size={states}>(t, w, r, b) s = Squeeze(rows, one)
        o = Transpose<perm=[1,2,0]>(s) e = Conv<pads=[2,2]>(o, k2, kb2) f = Tanh(e)
        u = Transpose<perm=[2,0,1]>(f) more, h2, cell2 = LSTM<hidden_size={states}>(u, w, r, b)
        z = Squeeze(more, one) y = MatMul(z, dense)""", weights)


def strided_pictures(steps: int, states: int = 16, channels: int = 4) -> bytes:
    """Two convolutions over steps and columns, as of spectra, that go on by two of each, before a GRU."""
    weights = {
        "k": normal(5, channels, 1, 3, 3, scale=.4), "kb": normal(6, channels),
        "k2": normal(7, channels, channels, 3, 3, scale=.2), "kb2": normal(8, channels),
        **_gru(4 * channels, states), "dense": normal(4, states, 6, scale=.3), "one": ONE,
        "sizes": np.array([-1, 1, 4 * channels], np.int64),
    }
    said = f"float[1,1,{steps},16] x => float[n,1,6] y"
    return model(said, f"""c = Conv<pads=[1,1,1,1], strides=[2,2]>(x, k, kb) d = Relu(c)
        e = Conv<pads=[1,1,1,1], strides=[2,2]>(d, k2, kb2) f = Relu(e)
        t = Transpose<perm=[2,0,1,3]>(f) q = Reshape(t, sizes)
        rows, h = GRU<hidden_size={states}, linear_before_reset=1>(q, w, r, b)
        s = Squeeze(rows, one) y = MatMul(s, dense)""", weights)


def random_strides(seed: int, steps: int, states: int = 16, inputs: int = 8, channels: int = 12) -> bytes:
    """One or two convolutions or poolings with any strides, borders and dilations, before a GRU."""
    rng, lines, source = np.random.default_rng(seed), [], "x"
    weights = {**_gru(channels, states), "dense": normal(4, states, 6, scale=.3), "one": ONE}
    for n in range(int(rng.integers(1, 3))):
        kernel, stride, dilation = (int(rng.integers(1, top)) for top in (6, 4, 3))
        span = (kernel - 1) * dilation + 1
        pads = f"{rng.integers(0, span)},{rng.integers(0, span)}"
        said = f"pads=[{pads}], strides=[{stride}], dilations=[{dilation}]"
        weights[f"k{n}"] = normal(5 + n, channels, channels if n else inputs, kernel, scale=.2)
        weights[f"kb{n}"] = normal(9 + n, channels)
        lines.append(f"c{n} = Conv<{said}>({source}, k{n}, kb{n}) d{n} = Relu(c{n})")
        source = f"d{n}"
        if rng.integers(0, 3) == 0:
            size = int(rng.integers(2, 4))
            said = f"kernel_shape=[{size}], strides=[{rng.integers(1, size + 1)}]"
            lines.append(f"p{n} = MaxPool<{said}>({source})")
            source = f"p{n}"
    body = " ".join(lines)
    said = f"float[1,{inputs},{steps}] x => float[n,1,6] y"
    return model(said, f"""{body} t = Transpose<perm=[2,0,1]>({source})
        rows, h = GRU<hidden_size={states}, linear_before_reset=1>(t, w, r, b)
        s = Squeeze(rows, one) y = MatMul(s, dense)""", weights)
