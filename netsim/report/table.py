"""Tables of plain text."""

from collections.abc import Sequence


def text_table(title: str, rows: Sequence[Sequence[str]]) -> str:
    """A title, a line of names and rows below; first column to the left, the last one too where it is no number."""
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    left = [any(c.isalpha() or c in "▁▂▃▄▅▆▇█" for row in rows[1:] for c in row[i][:1]) for i in range(len(widths))]
    lines = ["  ".join(c.ljust(w) if side else c.rjust(w) for c, w, side in zip(row, widths, left, strict=True)).rstrip() for row in rows]
    return "\n".join([title, *lines])
