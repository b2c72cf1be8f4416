"""Every tuned number of judging and correcting: effort, and margins for what is kept.

Efforts are multiply-accumulates of all float passes together: small networks are looked at with more samples
than large ones, and 400e9 are 1,000 passes of a network of 400 million. They bound a stage's time. None is
about a target. `benchmarks/verdicts.py` and `benchmarks/defaults.py` show what a change of one does.
"""

from __future__ import annotations

# Noise of every tensor and weight alone (sensitivity)
NOISE_MACS = 400e9           # of all passes: most of the time that a search for widths takes
NOISE_AGAIN = 0.34           # of the units, the noisiest, that more than one sample is spent on

# Passes of the network in sections, whose values are kept: memory for time
SECTIONS = 16                # at most: each is a session of its own, to be opened
SECTION_WEIGHTS = 256 << 20  # bytes of weights in all sessions together, roughly
SECTION_VALUES = 512 << 20   # bytes of values between sections, of all samples; less: more passes are whole
SECTION_NEAR = 0.25          # of a section's work, by which its end may move to fewer bytes
SECTION_VALUE = 32           # multiplications that take the time of writing a number

# What spoils an output most (culprit)
CULPRIT_MACS = 250e9         # of all passes
CULPRIT_FEWEST = 16          # passes, however large the network: fewer cannot halve it down to a layer
CULPRIT_PROBES = 4           # samples, where they can be afforded
CULPRIT_ALIKE = 0.9          # of the most noise taken away: among such units the network's first is named

# Fixes that are measured (advice)
FIX_MACS = 400e9             # of all that is measured
FIX_LEAST, FIX_MOST = 4, 12  # fixes that are measured, however large or small the network
FIX_GAIN = 1.0               # dB that a fix must bring to be worth a line ...
FIX_SHARE = 0.02             # ... or of answers
FIX_APART = 0.02             # of a range, from which on it differs from the extrema
FIX_FITTED = 16              # samples from which biases are corrected while a fix is tried

# A named calibration method against `auto`
NAMED_GAIN = 3.0             # dB by which an output must be better for a warning: half of the noise
NAMED_CLEAN = 40.0           # dB from which on nobody needs more
NAMED_SHARE = 0.01           # of equal answers by which it must be better otherwise ...
NAMED_FEWEST = 2.0           # ... and no less than so many samples' worth

# The ledger of noise by layer and cause
LEDGER_MACS = 600e9          # of all passes
LEDGER_FEWEST = 2            # samples, however large the network
LEDGER_MEASURED = 15         # parts, the largest, whose noise alone and without is measured
LEDGER_BLAMED = 0.1          # of the noise: what correction adds is looked into
LEDGER_SUSPECTS = 3          # parts, the largest, that may be why it does

# Mixtures of widths
MIXTURE_STEADY = 8           # held-out samples that rank mixtures
MIXTURE_LEVEL = 3            # effort of the plan that gives cycles
MIXTURE_ALONE = 1            # effort at which every layer is a group of its own
MIXTURE_ROUNDS = 3           # searches for a mixture whose plan keeps the limit of cycles
MIXTURE_NEAR = 0.97          # of the limit: so near that no more is asked for

# Models at hand while ranges are searched
RANGE_WEIGHTS = 1 << 28      # bytes of weights that they may hold

# Masks that are added to scores: an empty band between them and the scores is found
MASK_FAR = 4.0               # the band is at least so many times as wide as the band of scores ...
MASK_LEAST = 100.0           # ... and so wide

# Rounding
ROUND_ELEMENTS = 1 << 17     # of a sample's columns in one layer, beyond the least number of places
ROUND_PLACES = 8             # that are looked at, however wide the layer ...
ROUND_PER_TERM = 2           # ... and for every term of a grouped layer, whose sums are short
ROUND_RANGES = 0.1           # damping of what errors of terms count by, where ranges of groups are chosen
ROUND_PULL = 0.3             # damping of moved weights, as a share of the mean second moment
BLOCK_LAYERS = 3             # that plain stretches are put together to
BLOCK_BIAS_RATE = 0.1        # of biases, as a share of a weight's step from code to code
BLOCK_SHARE = 0.1            # of a step that is taken at first
DISTILL_WARM_UP = 0.05       # of the steps, in which the rate rises

# Channels
ORDER_TRIES = 60             # exchanges that are tried, for each channel
REMOVAL_ROUNDS = 8           # in which the channels of a group are removed, losses taken anew in each

# Corrections
SMOOTH_ALPHAS = (0.0, 0.25, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)      # shares of a range that migrate, tried
SMOOTH_ROWS = 64             # places of an activation that a sample is looked at
SMOOTH_SAMPLES = 16
SMOOTH_ENOUGH = 0.98         # of the error that a migration must not exceed
EQUALIZE_SETTLED = 1e-3      # no scale changes by more than this share: done
EQUALIZE_ROOM = 1.5          # times what samples had: how near a scaled channel may come to a clip that stays

# Codes of boxes
BOX_ROOM = 1.25              # beyond the extrema that calibration saw
BOX_REACH = 4.0              # boxes reach no further than so many images
