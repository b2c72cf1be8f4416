"""The quantised network as a TFLite file: int8 per channel, int16x8, integers in and out.

Noun: TFLite file.
Public: `to_tflite`, `judge`.
Does not know: plans, programs.
"""
