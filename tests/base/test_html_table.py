"""Tables for notebooks."""

from __future__ import annotations

from html.parser import HTMLParser

from npuflow.base.html_table import Rows, shown, table, titled


class Cells(HTMLParser):
    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.text: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self.tags.append(tag)

    def handle_data(self, data: str) -> None:
        self.text.append(data)


def test_rows_are_columns_too() -> None:
    rows = Rows([{"a": 1}, {"a": 2, "b": "x"}])
    assert rows.columns == {"a": [1, 2], "b": [None, "x"]} and rows == [{"a": 1}, {"a": 2, "b": "x"}]
    assert Cells(rows._repr_html_()).text == ["a", "b", "1", "2", "x"]


def test_text_is_escaped_and_long_tables_are_cut() -> None:
    found = Cells(table([{"<b>": "</td>"}] * 3, most=2))
    assert found.text == ["<b>", "</td>", "</td>", "the first 2 of 3 rows"] and found.tags.count("td") == 2
    assert Cells(titled("t & u", {"f": 1}, [])).text == ["t & u", "f", "1"]


def test_cells_are_as_a_person_reads_them() -> None:
    values = (None, True, 1234567, 1234567.8, 0.000123456, [1, "a"], {"oh": 7, "co": [1, 2]})
    said = [shown(v) for v in values]
    assert said == ["", "True", "1,234,567", "1,234,568", "0.00012346", "1, a", "oh 7, co 1, 2"]
