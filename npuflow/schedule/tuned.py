"""Every tuned number of the tiling search: effort (what is tried) and estimates (what is guessed).

None of them is about a target: those are in its file. `benchmarks/replay.py` shows what
a change of one does to plans.
"""

from __future__ import annotations

# Tilings of one layer
# candidate sizes of a `par` and a `sum` axis, by level
SIZES = ((4, 3), (6, 4), (10, 6), (14, 8), (20, 12), (40, 24))
CANDIDATES = 20_000          # candidates of one layer, per level + 1
EDGE_WASTE = 1.1             # of a tile size: what its whole units of the array may be, for one that is tried
STEP_COST = 16               # cycles of gain that one more tile must bring: programs stay short
GATHERED_ROOM = 64           # positions whose columns must fit local memory ...
GATHERED_SHARE = 2           # ... so many times over, for a layer whose columns are gathered
MEETING_AHEAD = 16           # loads that a core may have before one that it makes together with others

# Groups
GROUP_PARTS = {2: 6, 3: 9, 4: 12, 5: 16}        # parts of a group at most, by level
WAYS = {2: 16, 3: 20, 4: 128, 5: 512}           # ways to run groups that begin at one part, by level ...
WAYS_PARTS = 64              # ... in a network of up to so many parts; of twice as many, half as many ways
GROUP_MISSES = 3             # lengths in a row that are no gain: longer groups are not tried
# numbers of stripes tried
STRIPES = (2, 3, 4, 6, 8, 10, 12, 14, 16, 20, 24, 28, 32, 40, 48, 56, 64, 80, 96, 112)
STRIPE_ROOM = 0.8            # of local memory: what a group's largest tensor may take per stripe at least
PATIENCE = 1                 # numbers of stripes beyond the first that fits, while they gain
NEAR = 1.04                  # of its lower bound: no further way to run a group is tried
PART_LEVEL = 2               # the level of sizes tried for a part of a group
# shares of local memory
BUDGETS = (1.0, 0.875, 0.75, 0.625, 0.5, 0.4, 0.3, 0.225, 0.175, 0.125, 0.09, 0.0625, 0.03)
AHEAD = 8                    # constants up to 1/8 of local memory may all be there before their part runs
BUS_COST = 0.2               # assumed cost of a bus cycle to neighbouring groups, in cycles

SMALLER = (0.9, 0.75)        # of local memory, tried for a group that no allocation can place
KEEP_TRIALS = 6              # values that no allocation can place are passed over, so many at most

# Activations that stay on several cores
STAY_PARTS = 7               # parts of a group at most
STAY_MISSES = 2              # lengths in a row that are no gain: longer groups are not tried
STAY_REPAIRS = 24            # times that values leave local memory, or groups are cut, until a plan fits
STAY_ROOM = 0.75             # of local memory for a group, beside what stays for others
# the level of sizes tried for a part of such a group: tiles that fill its room leave none for addresses
STAY_LEVEL = 0
STAY_LESS = 0.5              # the same, where a plan with so much had to be mended

# Local memory over time
CONSTANT_ROOM = 0.85         # of local memory may be taken by constants that need not be there at once
# of local memory, tried one after the other for constants that come early
EARLY_SHARES = (1.0, 0.9, 0.75, 0.5)

# the same, for buffers that lie apart from those of the next parts
APART_SHARES = (1.0, 0.75)

# Jobs in another order
AHEAD_PARTS = (1, 2)         # parts whose buffers lie apart, tried one after the other ...
IN_TURN = 0.03               # ... where array and vector unit wait for each other for so much of the cycles
AHEAD_TILES = 1500           # tiles of plans behind which no further one is tried

# Plans that are scheduled
HARDLY_BELOW = 1.15          # estimates are up to a tenth below the schedule's time, and hardly ever above it
SURELY_SCHEDULED = 400       # tiles of a plan that is scheduled whatever its estimate says
NEVER_SCHEDULED = 50_000     # tiles beyond which a plan is not scheduled, which would take minutes
SCHEDULED_TILES = 4500       # tiles after which no further plan is scheduled, up to the default level ...
FAR, FAR_TILES = 2.0, 45_000   # ... and of plans that take so many times their bound
# a group that takes so many times its work, and so much more, waits for the bus
STARVED, STARVED_CYCLES = 1.3, 1500

# Tiles of a group's parts that overlap
# cuts tried
OVERLAP_COUNTS = {"channels": (1, 2, 3, 4), "rows": (1, 2, 3, 4, 5, 6), "columns": (1, 2), "sums": (1, 2)}
OVERLAP_TILES = 8            # tiles of a part at most
OVERLAP_WORK = 1.3           # of the fewest array cycles of a part, for a tiling that is tried
OVERLAP_SWEEPS = 2           # rounds over the parts ...
OVERLAP_GAIN = 0.995         # ... as long as one gains
OVERLAP_CORES = 3            # cores that a group is looked at on ...
OVERLAP_BUSY = 0.8           # ... of those that have so much to do, beside the first
# of a load's set-up, that a load of constants costs where the bus has time to spare
CONSTANT_PIECE = 0.25
# what comes from other cores finds the bus busy: its bytes take so many times as long
BORDER_BUS = 2.0

# Lower bounds
LATE_LAYERS = 64             # layers of a segment behind which the weights that are left are counted

# Banks
BANK_SWEEPS, BANK_LOOKS = 2, 16   # rounds over all lives, and addresses that one may take in a round
