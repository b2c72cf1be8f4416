"""The one sentence of a build about its accuracy, with numbers, and what to try."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from npuflow.base.wording import counted
from npuflow.checks.evaluate import CLEAR, Score
from npuflow.input.data.splits import VERIFIED_FROM
from npuflow.ir.noise import EXACT
from npuflow.strategies import Budget
from npuflow.tune.precision.advice import Fix
from npuflow.tune.precision.culprit import NoiseSource
from npuflow.tune.precision.output_check import JudgedOutput, in_decibels

MORE = "npuflow show verdict RECIPE"
MORE_SAMPLES = "more calibration samples, some of every kind of input that the network will see"
MANY = 200                                # answers above which their share is enough
FEW = 8                                   # samples below which a good verdict says little
ENOUGH = 50                               # evaluation samples from which on their metric counts
# dB of an output on the evaluation: the error is a third of the signal
LEAST = 10.0
AGREE = 0.95                              # share of equal answers there; of few samples two may differ


@dataclass(frozen=True)
class Statement:
    """`ok`: None where nothing could be judged. `noisy`: outputs of which nothing is wrong but that they have
    more noise than is asked for."""

    ok: bool | None
    text: str
    hint: str = ""
    noisy: tuple[str, ...] = ()

    def facts(self) -> dict[str, object]:
        """As facts of a step's summary, which the command line takes its last line from."""
        return {"verdict": self.text, "verdict_ok": self.ok, "verdict_hint": self.hint}


@dataclass(frozen=True)
class JudgedOn:
    """How many samples judge; `verified`: no choice has seen them."""

    samples: int
    verified: bool = True

    def __str__(self) -> str:
        if self.verified:
            return counted(self.samples, "held-out calibration sample")
        more = f"unverified: {VERIFIED_FROM} samples or more in [data] leave some that nothing is chosen by"
        return f"{counted(self.samples, 'calibration sample')} that choices were made by ({more})"


@dataclass(frozen=True)
class Advice:
    """What spoils the worst output, and fixes that were measured. `untried`: what to do to have some, where
    nothing was looked for; `short`: whether the search for widths found none that hold the budget."""

    culprit: NoiseSource | None = None
    fixes: Sequence[Fix] = ()
    untried: str = ""
    short: bool = False

    @property
    def hint(self) -> str:
        """The best fix, or why there is none."""
        if self.fixes:
            return f"{self.fixes[0].line} ({MORE})"
        return self.untried or f"no single change was found to help ({MORE} --log)"


def statement(
    outputs: Sequence[JudgedOutput],
    judged_on: JudgedOn,
    reason: str,
    budget: Budget,
    advice: Advice,
    inputs: str = "",
    weights: Mapping[str, int] | None = None,
) -> Statement:
    """`inputs`: what is wrong with the samples themselves; `weights`: how many numbers of constants are NaN.
    """
    if reason:
        return Statement(None, f"the outputs cannot be judged: {reason}")
    if not outputs:
        return Statement(None, "the outputs cannot be judged: there is no output to compare")
    on = f"on {judged_on}"
    empty = [one for one in outputs if one.nan]
    if empty:
        return _no_numbers(empty, on, weights or {})
    ranked = sorted(outputs, key=lambda one: min(one.output.sqnr, one.output.low))
    poor = [one for one in ranked if not one.ok]
    if poor:
        worst = poor[0].output
        more = f" (and {len(poor) - 1} more)" if len(poor) > 1 else ""
        asked = f"{budget.sqnr_db:g} dB" + (
            f" or {100 * budget.agreement:g} %" if worst.agreement is not None else ""
        )
        text = (
            f'the output "{worst.name}"{more} is far from the float model\'s: {figures(poor[0])} {on} '
            f'({asked} asked for{", which the search for widths did not reach" * advice.short})'
        )
        culprit = advice.culprit
        if culprit is not None and culprit.after > culprit.before:
            part = "most of the error" if _alone(culprit) else "the largest part of the error"
            text += f'; {part} comes from "{culprit.layer}"'
        # who asks for more than a build does by itself is not content with a metric that is kept
        noisy = () if budget.sqnr_db > Budget().sqnr_db else tuple(one.output.name for one in poor)
        return Statement(False, text, advice.hint, noisy)
    if inputs:
        text = (
            "the calibration samples are unlike the evaluation's, and ranges from them cannot be trusted: "
            f"{inputs}"
        )
        return Statement(False, text, "npuflow show input_check RECIPE --log")
    few = " (very few)" if judged_on.verified and judged_on.samples < FEW else ""
    text = f"every output is close to the float model's {on}{few}"
    short = f"; the search for widths did not reach the {budget.sqnr_db:g} dB asked for" * advice.short
    worst_of = in_decibels(ranked)[0]
    return Statement(True, f'{text}: the worst, "{worst_of.output.name}", has {figures(worst_of)}{short}')


def _no_numbers(outputs: Sequence[JudgedOutput], on: str, weights: Mapping[str, int]) -> Statement:
    """Of outputs that are NaN in the float model there is nothing to compare."""
    worst = max(outputs, key=lambda one: one.nan)
    more = f" (and {len(outputs) - 1} more)" if len(outputs) > 1 else ""
    share = "all" if worst.nan == 1.0 else f"{100 * worst.nan:.2g} %"
    text = f'the output "{worst.output.name}"{more} is NaN in the float model itself: '
    text += f"{share} of its values {on}"
    if weights:
        name, count = next(iter(weights.items()))
        some = f" (and {len(weights) - 1} more constants)" if len(weights) > 1 else ""
        text += f'; the constant "{name}"{some} holds {count} NaN'
        return Statement(False, text, "a model whose weights are numbers")
    hint = "to find what gives NaN on these samples: Log, Sqrt, Pow, a quotient of zeros"
    return Statement(False, text, hint)


def figures(judged: JudgedOutput) -> str:
    """dB, how far they may be off, and answers, in words."""
    one, off = judged.output, judged.give_or_take
    if one.whole and one.equal is not None:
        return _answers(one.equal, one.compared)
    about = f" give or take {off:.1f}" if off is not None and off >= 0.05 else ""
    answers = "" if one.equal is None else f" and {_answers(one.equal, one.compared)}"
    low = f", four of five samples {one.low:.1f} dB" if one.low < one.sqnr - 3 else ""
    where = f' where "{judged.where}" is high' if judged.where else ""
    return f"{'no error' if one.sqnr >= EXACT else f'{one.sqnr:.1f} dB'}{about}{where}{low}{answers}"


def _answers(equal: float, compared: int) -> str:
    """Of few answers their number, as a share of them says less."""
    if compared > MANY or not compared:
        return f"{100 * equal:.1f} % of equal answers"
    return f"{round(equal * compared)} of {compared} answers equal"


@dataclass(frozen=True)
class AccuracyWarning:
    """Something to look at beside the sentence, and what to try."""

    text: str
    hint: str


def accuracy_warnings(
    outputs: Sequence[JudgedOutput], bias: AccuracyWarning | None, said: Statement, score: Score | None
) -> list[AccuracyWarning]:
    """Outputs whose figures differ from part to part of the samples, or whose figure is that of an offset,
    unless a metric of them is kept; a bias between the program and its QDQ model, unless the program is good
    and so is its metric."""
    open_ = [one for one in outputs if not settled(score, [one.output.name])]
    apart = _unsteady([one for one in open_ if one.unsteady])
    found = [AccuracyWarning(apart, MORE_SAMPLES)] if apart else []
    found += [_of_offset(one, one.varying_db) for one in open_ if one.varying_db is not None][:1]
    return [*found, bias] if bias is not None and not (said.ok and settled(score, ())) else found


def _unsteady(outputs: Sequence[JudgedOutput]) -> str:
    found = sorted(outputs, key=lambda one: min(one.parts_db))
    if not found:
        return ""
    worst, more = found[0], f" (and {len(found) - 1} more)" if len(found) > 1 else ""
    low, high = min(worst.parts_db), max(worst.parts_db)
    return (
        f'parts of the held-out calibration samples disagree: the output "{worst.output.name}"{more} has '
        f"from {low:.1f} to {high:.1f} dB on them, and may have less on other inputs"
    )


def _of_offset(one: JudgedOutput, varying: float) -> AccuracyWarning:
    """To have of what varies what the whole has now takes so much more of the whole."""
    whole = one.output.sqnr
    return AccuracyWarning(
        f'most of the output "{one.output.name}" is an offset, the mean of all its values: of the rest the '
        f"program keeps {varying:.1f} dB, not {whole:.1f}",
        f"[precision] sqnr_db = {round(2 * whole - varying)} asks for as much of the rest",
    )


def _alone(culprit: NoiseSource) -> bool:
    """Whether at least half of the noise is this unit's."""
    return culprit.after >= culprit.before + 3.0


def settled(score: Score | None, names: Iterable[str]) -> bool:
    """Whether a metric that depends on all these outputs, or parts of them, is at most a point below the
    float network's, on enough samples."""
    if score is None or score.samples < ENOUGH or not score.kept:
        return False
    return all(any(name == one or name.startswith(f"{one} (") for one in score.reads) for name in names)


def evaluated(said: Statement, score: Score | None) -> Statement:
    """The sentence once an evaluation is there: it adds its figures, and what they say counts: where they are
    poor although the calibration samples looked well, and where a metric of the outputs is kept although
    their decibels are fewer than those asked for."""
    if score is None:
        return said
    # Of the first output, where that is a row of scores: the largest of other numbers is no answer. Other
    # outputs have their levels alone
    same, first = score.agreement, next(iter(score.sqnr_db), "")
    poor = sorted(
        (level, name)
        for name, level in score.sqnr_db.items()
        if -200.0 < level < LEAST and (same is None or name != first)
    )
    watch = next(iter(score.figures))
    beside = f" (float {score.beside[watch]:.4g})" if watch in score.beside else ""
    figures = f"{watch} {score.figures[watch]:.4g}{beside} on {score.samples} evaluation samples"
    noisy = score.sqnr_db.get(first, 0.0) < CLEAR
    if same is not None and (1 - same) * score.samples > 2 and same < AGREE and noisy:
        what = f"its answer is the float model's on {100 * same:.1f} % of them"
    elif poor:
        what = f'the output "{poor[0][1]}" has {poor[0][0]:.1f} dB there'
    elif said.noisy and settled(score, said.noisy):
        return Statement(True, f"{figures}, as good as the float model's, although {said.text}", said.hint)
    else:
        return Statement(said.ok, f"{said.text}; {figures}", said.hint)
    if said.ok is False:
        return Statement(False, f"{said.text}; {figures}: {what}", said.hint)
    text = f"the program is far from the float model on the evaluation: {figures}, and {what}"
    text += "; the calibration samples do not show it"
    return Statement(
        False,
        text,
        "calibration samples that are like the evaluation's (npuflow show input_check RECIPE --log)",
    )
