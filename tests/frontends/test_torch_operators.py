"""Operators of PyTorch modules that become several of ONNX: branches, samples of images, transforms."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from npuflow.base.errors import ModelError
from npuflow.frontends import Bindings, Reading
from npuflow.onnx.export import export_model
from npuflow.onnx.run import run

torch = pytest.importorskip("torch", reason="npuflow[torch] is not installed")
F = torch.nn.functional


def module(function: Callable[..., Any], **held: Any) -> Any:
    """A module of a function of itself and its inputs; `held`: modules, parameters and buffers."""

    class Made(torch.nn.Module):  # type: ignore[misc]  # torch may be missing
        def __init__(self) -> None:
            super().__init__()
            for name, value in held.items():
                if isinstance(value, torch.nn.Module):
                    self.add_module(name, value)
                else:
                    self.register_buffer(name, value)

        def forward(self, x: Any) -> Any:
            return function(self, x)

    return Made().eval()


def read(net: Any, x: Any) -> Reading:
    """The module as a graph, in this process."""
    from npuflow.frontends._nodes.replay import replayed
    from npuflow.frontends.torch.convert import packed
    from npuflow.frontends.torch.load import exported
    from npuflow.ir.packed import unpack

    data, notes = packed(exported(torch, net, (x,)))
    found = replayed(*unpack(data), Bindings())
    return Reading(found.graph, (*notes, *found.notes), found.stated)


def check(net: Any, *inputs: Any) -> Reading:
    """The first input is the example; for each the graph gives what eager gives."""
    found = read(net, inputs[0])
    for x in inputs:
        wanted = net(x)
        wanted = list(wanted) if isinstance(wanted, tuple | list) else [wanted]
        mine = run(export_model(found.graph), {found.graph.inputs[0]: x.numpy()})
        assert len(mine) == len(wanted)
        for a, b in zip(mine, (w.detach().numpy() for w in wanted), strict=True):
            assert a.shape == b.shape and np.abs(a - b).max() <= 2e-5 * max(1.0, np.abs(b).max())
    return found


def kinds(found: Reading) -> list[str]:
    return [node.op.onnx_type()[1] for node in found.graph.nodes]


def drawn(*shape: int) -> Any:
    return torch.from_numpy(np.random.default_rng(0).standard_normal(shape).astype(np.float32))


def linears() -> dict[str, Any]:
    torch.manual_seed(0)
    return {"a": torch.nn.Linear(6, 4), "b": torch.nn.Linear(6, 4)}


def test_a_branch_that_depends_on_data_computes_both() -> None:
    net = module(
        lambda s, x: torch.cond(x.sum() > 0, lambda x: s.a(x).relu(), lambda x: s.b(x) * 2, (x,)) + 1,
        **linears(),
    )
    x = drawn(1, 6)
    found = check(net, x, -x, x.abs(), -x.abs())
    assert kinds(found).count("Where") == 1
    assert any("both branches are computed" in note for note in found.notes)


def test_a_branch_whose_condition_is_constant_is_the_only_one() -> None:
    for flag in (True, False):
        net = module(
            lambda s, x: torch.cond(s.flag, lambda x: s.a(x), lambda x: s.b(x).sin(), (x,)),
            flag=torch.tensor(flag), **linears(),
        )
        found = check(net, drawn(1, 6))
        assert "Where" not in kinds(found) and ("Sin" in kinds(found)) is not flag and not found.notes


def test_branches_in_branches_and_with_several_results() -> None:
    def inner(s: Any, x: Any) -> Any:
        return torch.cond(x[0, 0] > 0, lambda x: (s.a(x), x.sin()), lambda x: (s.b(x), x.cos()), (x,))

    def outer(s: Any, x: Any) -> Any:
        return torch.cond(x.sum() > 0, lambda x: inner(s, x), lambda x: (s.a(x) * 2, x * 3), (x,))

    x = drawn(1, 6)
    check(module(inner, **linears()), x, -x)
    check(module(outer, **linears()), x, -x, x.abs(), -x.abs())


def test_modules_that_are_called_without_gradients() -> None:
    def still(s: Any, x: Any) -> Any:
        with torch.no_grad():
            y = s.a(x)
        with torch.autocast("cpu", enabled=False):
            return s.b(x) + y

    check(module(still, **linears()), drawn(1, 6))


def test_what_is_refused_in_branches_and_loops_is_one_error() -> None:
    net = module(
        lambda s, x: torch.cond(
            x.sum() > 0, lambda x: torch.special.bessel_j0(s.a(x)), lambda x: s.b(x), (x,)
        ),
        **linears(),
    )
    with pytest.raises(ModelError, match="1 operator of the PyTorch module") as caught:
        read(net, drawn(1, 6))
    assert "special_bessel_j0" in caught.value.because
    loop = torch._higher_order_ops.while_loop
    net = module(lambda s, x: loop(lambda i, x: i < 3, lambda i, x: (i + 1, x * 2), (torch.tensor(0), x))[1])
    with pytest.raises(ModelError, match="cannot be converted") as caught:
        read(net, drawn(1, 6))
    assert "while_loop: a loop whose steps depend on data" in caught.value.because


@pytest.mark.parametrize("mode", ["bilinear", "nearest", "bicubic"])
@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
@pytest.mark.parametrize("corners", [False, True])
def test_samples_of_an_image(mode: str, padding: str, corners: bool) -> None:
    torch.manual_seed(0)
    net = module(
        lambda s, x: F.grid_sample(
            x, 1.3 * torch.tanh(s.c(x)).permute(0, 2, 3, 1), mode=mode, padding_mode=padding,
            align_corners=corners,
        ),
        c=torch.nn.Conv2d(3, 2, 3, padding=1),
    )
    assert "GridSample" in kinds(check(net, drawn(1, 3, 8, 8)))


def test_a_spatial_transformer() -> None:
    torch.manual_seed(0)

    def turned(s: Any, x: Any) -> Any:
        grid = F.affine_grid(s.theta(x.mean((2, 3))).reshape(-1, 2, 3), list(x.shape), align_corners=False)
        return F.grid_sample(x, grid, align_corners=False)

    check(module(turned, theta=torch.nn.Linear(3, 6)), drawn(1, 3, 8, 8))


X, IMAGE = (2, 3, 12), (1, 3, 8, 6)
FFT = torch.fft
TRANSFORMS: dict[str, tuple[Sequence[int], Callable[[Any], Any]]] = {
    "rfft magnitude": (X, lambda x: FFT.rfft(x).abs()),
    "rfft parts": (X, lambda x: (FFT.rfft(x).real, FFT.rfft(x, norm="ortho").imag)),
    "rfft of fewer": (X, lambda x: torch.view_as_real(FFT.rfft(x, n=7))),
    "rfft of more": (X, lambda x: torch.view_as_real(FFT.rfft(x, n=17, norm="forward"))),
    "rfft along": (X, lambda x: torch.view_as_real(FFT.rfft(x, dim=1))),
    "fft": (X, lambda x: torch.view_as_real(FFT.fft(x, dim=-2, norm="ortho"))),
    "ifft": (X, lambda x: torch.view_as_real(FFT.ifft(FFT.fft(x) * (0.5 + 2j)))),
    "irfft": (X, lambda x: FFT.irfft(FFT.rfft(x) * 2)),
    "irfft odd": (X, lambda x: FFT.irfft(FFT.rfft(x), n=11, norm="ortho")),
    "irfft of more": (X, lambda x: FFT.irfft(FFT.rfft(x), n=20, norm="forward")),
    "rfft2": (IMAGE, lambda x: FFT.rfft2(x).abs()),
    "irfft2": (IMAGE, lambda x: FFT.irfft2(FFT.rfft2(x, norm="ortho"), s=(8, 6), norm="ortho")),
    "fft2": (IMAGE, lambda x: torch.view_as_real(FFT.ifft2(FFT.fft2(x)))),
    "fftn": (IMAGE, lambda x: FFT.fftn(x, dim=(1, 3)).abs()),
    "rfftn": (IMAGE, lambda x: FFT.irfftn(FFT.rfftn(x, dim=(1, 2)), s=(3, 8), dim=(1, 2))),
    "shifted": (IMAGE, lambda x: FFT.fftshift(FFT.fft2(x)).abs()),
    "moved": (X, lambda x: FFT.fft(x).transpose(1, 2).reshape(2, -1)[:, 3:20].abs()),
    "joined": (X, lambda x: torch.cat([FFT.fft(x), FFT.ifft(x)], 1).sum(1).abs()),
    "quotient": (X, lambda x: (FFT.fft(x) / (FFT.fft(x.flip(-1)) + 30)).abs()),
    "conjugate": (X, lambda x: FFT.irfft(FFT.rfft(x) * FFT.rfft(x.roll(1, -1)).conj())),
    "angle": (X, lambda x: torch.complex(x, x.flip(-1)).angle()),
    "complex": (X, lambda x: (torch.complex(x, x.roll(1, -1)) - 1).abs()),
    "of pairs": ((2, 5, 2), lambda x: torch.view_as_real(torch.view_as_complex(x.contiguous()) * 2j)),
    "stft": ((2, 200), lambda x: torch.stft(
        x, 32, 8, window=torch.hann_window(32), return_complex=True).abs()),
    "stft of one": ((200,), lambda x: torch.stft(
        x, 32, 10, 20, torch.hamming_window(20), center=False, normalized=True, return_complex=True).abs()),
    "stft pairs": ((2, 200), lambda x: torch.view_as_real(
        torch.stft(x, 16, window=torch.ones(16), onesided=False, pad_mode="constant", return_complex=True))),
}


@pytest.mark.parametrize("name", TRANSFORMS)
def test_transforms_give_eager_s_outputs(name: str) -> None:
    shape, function = TRANSFORMS[name]
    check(module(lambda s, x: function(x)), drawn(*shape))


def test_a_filter_of_frequencies_that_is_a_parameter() -> None:
    """The global filter of GFNet: a complex parameter, kept as pairs of numbers."""
    weight = drawn(3, 8, 4, 2)
    net = module(
        lambda s, x: FFT.irfft2(
            FFT.rfft2(x, norm="ortho") * torch.view_as_complex(s.w), s=(8, 6), norm="ortho"
        ),
        w=weight,
    )
    check(net, drawn(1, 3, 8, 6))


def test_transforms_that_torch_has_decomposed() -> None:
    from npuflow.frontends.torch.convert import packed
    from npuflow.ir.packed import unpack

    net = module(lambda s, x: FFT.irfft(FFT.fft(FFT.rfft(x), dim=1, norm="ortho"), norm="forward"))
    x = drawn(*X)
    program = torch.export.export(net, (x,)).run_decompositions()
    assert any("_fft_c2r" in str(node.target) for node in program.graph.nodes)
    graph, _ = unpack(packed(program)[0])
    (mine,) = run(export_model(graph), {graph.inputs[0]: x.numpy()})
    assert np.abs(mine - net(x).numpy()).max() <= 1e-4


def test_complex_numbers_that_are_not_read_say_so() -> None:
    with pytest.raises(ModelError, match="output 0 of the module is complex") as caught:
        read(module(lambda s, x: FFT.rfft(x)), drawn(*X))
    assert "view_as_real" in caught.value.hint
    with pytest.raises(ModelError, match="cannot be converted") as caught:
        read(module(lambda s, x: torch.exp(FFT.rfft(x)).abs()), drawn(*X))
    assert "of complex numbers" in caught.value.because
    with pytest.raises(ModelError, match="cannot be converted") as caught:
        read(module(lambda s, x: FFT.rfft(x).abs()), drawn(1, 16384))
    assert "a matrix of 134234112 numbers" in caught.value.because


def test_logarithms_to_other_bases() -> None:
    x = drawn(3, 4).abs() + 0.1
    check(module(lambda s, x: (torch.log2(x), torch.log10(x), torch.log1p(x), torch.expm1(x))), x)


@pytest.mark.parametrize("keep", [False, True])
def test_a_place_among_all_elements(keep: bool) -> None:
    check(module(lambda s, x: (torch.argmax(x, None, keep), torch.argmin(x, None, keep))), drawn(3, 4))


@pytest.mark.parametrize("decimals", [-1, 0, 2])
def test_rounding_to_decimals(decimals: int) -> None:
    check(module(lambda s, x: torch.round(x * 30, decimals=decimals)), drawn(3, 4))


def test_thresholds_and_what_is_cut_off() -> None:
    check(module(lambda s, x: (F.threshold(x, 0.2, -3.0), torch.trunc(x * 3))), drawn(3, 4))


@pytest.mark.parametrize("accumulate", [False, True])
def test_values_that_are_put_at_places(accumulate: bool) -> None:
    one, other = torch.tensor([0, 2]), torch.tensor([[1], [3]])
    check(module(lambda s, x: torch.index_put(x, (one,), x[:1, :1], accumulate)), drawn(3, 4))
    check(module(lambda s, x: torch.index_put(x, (one, other), x[0, 0], accumulate)), drawn(3, 4))
