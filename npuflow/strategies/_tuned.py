"""Every tuned number of the searches for widths: how many mixtures are judged, and what is worth one.

Judging costs most: each mixture that the quantised network judges is a network quantised and run.
`benchmarks/verdicts.py` shows what a change of one does.
"""

from __future__ import annotations

# auto: a ladder of widened units, then back where cycles can be saved
LADDER_LEAST = 2e-5          # of all cycles: what a unit costs at least, so that ratios stay finite
LADDER_FAILS = 3.0           # dB by which all units wide must miss the budget before float is thought of
LADDER_DEAR = 2.0            # times the cycles of all units wide: what float on the host may cost
LADDER_HALF = 0.5            # of what a last step must gain, the whole way to the budget must
LADDER_CHECKS = 8            # cheaper rungs that the quantised network itself judges, at most
LADDER_HALVES = 2            # checks between the rung that is enough and the one before it
LADDER_SAVES = 0.01          # of all cycles: what narrowing a unit again must save to be tried ...
LADDER_TRIED = 16            # ... of at most so many, the dearest, ...
LADDER_MISSES = 2            # ... until so many of them break the budget

# ilp: mixtures by an integer program over prices of units and pairs
PRICE_ANCHORS = 5            # mixtures, spread over the front, that prices are first taken around
PRICE_COUPLED = 1e-4         # of the price: pairs that change it by less have no term of their own
PRICE_CLOSE = 0.01           # relative error of the predicted price that is good enough

# exhaustive
ALL_MIXTURES = 200_000       # more are refused

# The front of cycles and noise that several strategies share
FRONT_CHECKS = 6             # points that the quantised network judges on the way to the cheapest
FRONT_SPREAD = 4             # more of them, spread over the front, where none holds the budget
