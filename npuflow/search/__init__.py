"""How a network is cut into tiles that fit local memory, and what that costs.

Noun: `TilingPlan`.
Public: `plan_network`, `TilingPlan`, `Pins`, `PlanRequest`.
Does not know: command words, samples.
"""
