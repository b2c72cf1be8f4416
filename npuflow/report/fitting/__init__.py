"""Constants of a target, fitted to what a board was measured to take."""
