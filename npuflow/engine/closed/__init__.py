"""The closed form of a plan: cycles and bytes tile by tile, out of group and tile parameters."""
