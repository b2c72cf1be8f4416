"""Vector code for compiled functions, and its loop: sums that every round adds to, kept in registers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from llvmlite import ir  # type: ignore[import-untyped]
from numba.extending import intrinsic as _made

I64 = ir.IntType(64)


def intrinsic(function: Callable[..., Any]) -> Any:
    """A function of compiled code that writes its own vector code; it is called with
    the arguments after the first."""
    made: Any = _made(function)
    return made


def counted(
    builder: Any, count: Any, before: Sequence[Any], step: Callable[[Any, list[Any]], Sequence[Any]]
) -> list[Any]:
    """Emits `count` rounds: `step(k, sums)` gives the sums after round k. The sums behind the last round."""
    start = builder.block
    head, body, done = (builder.append_basic_block(name) for name in ("head", "body", "done"))
    builder.branch(head)
    builder.position_at_end(head)
    k, sums = builder.phi(I64), [builder.phi(one.type) for one in before]
    builder.cbranch(builder.icmp_signed("<", k, count), body, done)
    builder.position_at_end(body)
    after = step(k, sums)
    rounds = [(k, I64(0), builder.add(k, I64(1))), *zip(sums, before, after, strict=True)]
    for phi, first, following in rounds:
        phi.add_incoming(first, start)
        phi.add_incoming(following, builder.block)
    builder.branch(head)
    builder.position_at_end(done)
    return sums
