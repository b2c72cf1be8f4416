"""The simulator: decoded words on byte arrays, hazards by happens-before, an event-driven
clock; arithmetic of its own."""
