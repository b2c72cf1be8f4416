"""Tests of the room that the folder names."""
