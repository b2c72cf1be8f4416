"""The simulator: decoded words on byte arrays, hazards by happens-before, an event-driven clock.

Noun: `SimulatedMachine`.
Public: `SimulatedMachine`, `timeline_of`, `hazards_of`, `Tile`.
Does not know: graphs, plans: it sees words and bytes only.
"""
