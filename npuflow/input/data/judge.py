"""Judges model inputs by their profiles: calibration alone, and beside those of the evaluation."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace

import numpy as np

from npuflow.input.data.profile import InputProfile
from npuflow.ir.codes import decode
from npuflow.ir.types import QuantType

FEW = 16                                  # fewer samples than this say little about ranges
EVEN, UNEVEN = 0.02, 0.04                 # of the range, by which channels begin or end apart
# of the calibrated range, by which an evaluation may reach beyond it
BEYOND = 0.08
ELSEWHERE = 0.3                           # deviations by which the means of two sets may differ
# of what the codes of an input hold, by which samples reach beyond it: of whole numbers that could be such
# codes, and of any others, whose outliers may be clipped
AS_CODES, CLIPPED = 0.1, 1.0
# roughness above this: neighbours know nothing of each other (1.13 in theory)
NOISE = 0.95


def judged(
    calibration: Mapping[str, InputProfile],
    evaluation: Mapping[str, InputProfile] | None = None,
    count: int | None = None,
    states: Collection[str] = (),
) -> Iterator[str]:
    """A sentence for everything that looks wrong. `count`: all calibration samples, of
    which only some are profiled. `states`: inputs that the network itself makes. They begin a sequence with
    one value, and neighbours in them need have nothing in common."""
    known = count if count is not None else max((one.samples for one in calibration.values()), default=0)
    if 0 < known < FEW:
        yield (
            f"only {known} calibration sample{'s' * (known > 1)}: ranges are little more than a guess; "
            f"{FEW} to 512 are usual"
        )
    for name, profile in calibration.items():
        one, other = profile, (evaluation or {}).get(name)
        if name in states:
            one = _made(one)
            other = None if other is None else _made(other)
        if not _state(one, calibration):
            yield from _alone(name, one, "calibration")
        if evaluation is not None and other is not None:
            if not _state(other, evaluation):
                yield from _alone(name, other, "evaluation")
            yield from _beside(name, one, other)


def _made(state: InputProfile) -> InputProfile:
    return replace(state, constant=(), roughness=None)


def unlike(calibration: Mapping[str, InputProfile], evaluation: Mapping[str, InputProfile]) -> Iterator[str]:
    """Of two sets beside each other what makes ranges from the first worthless for the second: another
    scale, or values beyond what was calibrated in a set that lies elsewhere. Ranges are clipped there, and
    no calibration sample shows it.
    """
    for name, one in calibration.items():
        other = evaluation.get(name)
        if other is None or not one.real or not other.real or one.std == 0 or other.std == 0:
            continue
        ratio, apart = other.std / one.std, abs(other.mean - one.mean) / max(one.std, other.std)
        over = max(other.hi - one.hi, one.lo - other.lo) / (one.hi - one.lo)
        if not 0.4 <= ratio <= 2.5 or (over > BEYOND and (not 0.8 <= ratio <= 1.25 or apart > ELSEWHERE)):
            yield f'"{name}": calibration {_range(one)}, evaluation {_range(other)}'


def apart(calibration: Mapping[str, InputProfile], evaluation: Mapping[str, InputProfile]) -> Iterator[str]:
    """A sentence for everything in which two sets differ as no two sets of the same inputs do: scale, mean,
    order of colours, layout. What `unlike` finds is there, too, if nothing says it better."""
    for name, one in calibration.items():
        other = evaluation.get(name)
        if other is not None:
            said = list(_beside(name, one, other))
            yield from said or unlike({name: one}, {name: other})


def beyond_codes(profiles: Mapping[str, InputProfile], stated: Mapping[str, object]) -> Iterator[str]:
    """A sentence for every input that reaches far beyond the numbers that the model's own codes of it
    (`stated`) hold: samples are those codes, or scaled otherwise."""
    for name, one in profiles.items():
        quant = stated.get(name)
        if not one.real or not isinstance(quant, QuantType) or not quant.per_tensor:
            continue
        low, high = (float(v) for v in decode(np.array([quant.lo, quant.hi], quant.dtype), quant))
        over = max(low - one.lo, one.hi - high) / (high - low)
        codes = one.lo.is_integer() and one.hi.is_integer() and quant.lo <= one.lo and one.hi <= quant.hi
        if over > (AS_CODES if codes else CLIPPED):
            zero = quant.zero_point[0]
            number = f"(code {'+' if zero < 0 else '-'} {abs(zero)}) * {quant.scale[0]:.6g}"
            yield (
                f'the calibration samples of "{name}" are {one.lo:.6g}..{one.hi:.6g}, but the model\'s own '
                f"codes hold {low:.6g}..{high:.6g}, and the rest is clipped; "
                + (f"codes instead of numbers, {number}?" if codes else "samples of another scale?")
            )


def _state(one: InputProfile, all_inputs: Mapping[str, InputProfile]) -> bool:
    """Whether it is zero in every sample beside an input that is not, as the first states of a recurrent
    network are."""
    return one.lo == one.hi == 0 and any(other.std > 0 for other in all_inputs.values())


def _alone(name: str, one: InputProfile, what: str) -> Iterator[str]:
    if one.constant and one.real:
        shown = ", ".join(one.constant[:3]) + (", ..." if len(one.constant) > 3 else "")
        yield (
            f'{len(one.constant)} of {one.samples} {what} samples have the same value all over "{name}": '
            f'{shown}'
        )
    if one.samples > 1 and one.different == 1 and one.real and not one.constant:
        yield f'all {one.samples} {what} samples of "{name}" are the same'
    elif not one.constant and one.samples >= 8 and one.different <= one.samples // 2 and one.real:
        yield f'{one.samples} {what} samples of "{name}" repeat: only {one.different} of them differ'
    if not one.real or one.roughness is None or len(one.shape) != 4:
        return
    step, regular = min(zip((3, 4), one.strides or (9.0, 9.0), strict=True), key=lambda pair: pair[1])
    if regular < 0.6 * one.roughness:
        yield (
            f'the {what} samples of "{name}" repeat every {step} elements of a row: channels-last data '
            "in a channels-first "
            "input? (a `layout` step moves the channels)"
        )
    elif one.roughness > NOISE:
        yield (
            f'the {what} samples of "{name}" look like random numbers: neighbours in a row have nothing in '
            'common'
        )


def _beside(name: str, one: InputProfile, other: InputProfile) -> Iterator[str]:
    if not one.real or not other.real:
        yield from _codes(name, one, other)
        return
    if one.std == 0 or other.std == 0:
        return
    ratio = other.std / one.std
    apart = abs(other.mean - one.mean) / max(one.std, other.std)
    ranges = f"calibration {_range(one)}, evaluation {_range(other)}"
    if _scaled_apart(one, other):
        yield (
            f'the channels of "{name}" are scaled each on its own in one set and not in the other: '
            "minima are "
            f"{_listed(one.lows)} in the calibration, {_listed(other.lows)} in the evaluation, maxima "
            f"{_listed(one.highs)} and {_listed(other.highs)}: mean and std of another "
            "network?"
        )
    elif not 0.4 <= ratio <= 2.5:
        factor = max(ratio, 1 / ratio)
        pixels = next((k for k in (255, 128, 58) if 0.8 < factor / k < 1.25), None)
        about = f"about {pixels}, as with and without a normalize step" if pixels else f"{factor:.3g}"
        yield f'"{name}" has another scale in the evaluation, by a factor of {about}: {ranges}'
    else:
        if _swapped(one, other):
            yield (
                f'the colours of "{name}" are in the other order in the evaluation (RGB against BGR): '
                "means by channel are "
                f"{_listed(one.colours)} in the calibration, {_listed(other.colours)} in the "
                "evaluation"
            )
        if apart > 1.0:
            yield f'"{name}" is shifted in the evaluation by {apart:.2g} standard deviations: {ranges}'
        elif other.hi > one.hi + 0.25 * (one.hi - one.lo) or other.lo < one.lo - 0.25 * (one.hi - one.lo):
            yield f'"{name}" exceeds the calibrated range in the evaluation: {ranges}'
    if (
        one.roughness
        and other.roughness
        and not 0.33 <= other.roughness / one.roughness <= 3
        and len(one.shape) == 4
    ):
        yield (
            f'neighbours in "{name}" differ '
            f"{max(other.roughness / one.roughness, one.roughness / other.roughness):.2g} times "
            "as much in one set as in the other: another layout, size or kind of data?"
        )


def _codes(name: str, one: InputProfile, other: InputProfile) -> Iterator[str]:
    """Integers (tokens, masks): only what calibration has never seen."""
    if other.hi > 2 * max(one.hi, 1) or other.lo < min(one.lo, 0) * 2 - 1:
        yield (
            f'"{name}" holds {other.lo:.6g}..{other.hi:.6g} in the evaluation, {one.lo:.6g}..{one.hi:.6g} '
            'in the calibration'
        )


def _listed(numbers: tuple[float, ...]) -> str:
    return ", ".join(f"{number:.3g}" for number in numbers)


def _range(one: InputProfile) -> str:
    return f"{one.lo:.4g}..{one.hi:.4g}, mean {one.mean:.3g}, deviation {one.std:.3g}"


def _scaled_apart(one: InputProfile, other: InputProfile) -> bool:
    """Whether all channels begin and end alike in one set, as the colours of pictures
    do, and in the other neither."""
    if min(one.samples, other.samples) < FEW or min(len(one.lows), len(other.lows)) < 2:
        return False
    mine, theirs = _uneven(one), _uneven(other)
    return (max(mine) < EVEN and min(theirs) > UNEVEN) or (max(theirs) < EVEN and min(mine) > UNEVEN)


def _uneven(one: InputProfile) -> tuple[float, float]:
    """By how much of the range channels differ in where they begin, and in where they end."""
    reach = max(one.hi - one.lo, 1e-30)
    return (max(one.lows) - min(one.lows)) / reach, (max(one.highs) - min(one.highs)) / reach


def _swapped(one: InputProfile, other: InputProfile) -> bool:
    """Whether red and blue have changed places: both sets lean to one of them beyond
    chance, and not to the same."""
    if one.tilt is None or other.tilt is None:
        return False
    (mine, error), (theirs, other_error) = one.tilt, other.tilt
    return mine * theirs < 0 and abs(mine) > 3 * error and abs(theirs) > 3 * other_error
