"""Figures: functions from plain data to a Vega-Lite specification, for pages and for files."""
