"""Cheap corrections of a network that is to be, or has been, quantised: no training, no
labels, one incremental pass."""
