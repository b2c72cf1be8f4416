"""Where a program's cycles and bytes go: rows, pictures, traces and comparisons."""

from npuflow.report.profile.measure import Profile as Profile
from npuflow.report.profile.measure import profile as profile
