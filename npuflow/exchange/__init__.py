"""Calibration tables of other tools, one format a file: text, and ranges by tensor name.

Noun: `TableFormat`.
Public: one class a format, found by scanning.
Does not know: networks, other formats.
"""

from npuflow.exchange._tables import EXCHANGE as EXCHANGE
from npuflow.exchange._tables import Format as Format
from npuflow.exchange._tables import Rows as Rows
from npuflow.exchange._tables import Table as Table
from npuflow.exchange._tables import TensorEntry as TensorEntry
from npuflow.exchange._tables import exact as exact
from npuflow.exchange._tables import grid as grid
from npuflow.exchange._tables import plain_row as plain_row
from npuflow.exchange._tables import read_table as read_table
from npuflow.exchange._tables import row_of as row_of
from npuflow.exchange._tables import tree as tree
