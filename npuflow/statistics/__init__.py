"""What the samples show of every tensor: exact histograms that merge.

Noun: `ObservedStatistics`.
Public: `ObservedStatistics`, `StatisticsColumn`, `needed_values`.
Does not know: how a range is chosen.
"""
