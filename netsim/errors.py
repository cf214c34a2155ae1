"""Errors that are meant for the person at the keyboard.

`InputError` carries one line per mistake, each already in the form `file:line:col: field: expected ...; got ...`.
The command line prints them and exits with code 2; nothing else in the project prints an error or exits.
"""

from collections.abc import Iterable


class InputError(Exception):
    """What the user asked for cannot be; `lines` holds one finished sentence per mistake."""

    alone = False
    """Found by one rank that is not the first, which then says it itself; other mistakes are found by all, and said by the first."""

    def __init__(self, lines: str | Iterable[str]) -> None:
        self.lines = [lines] if isinstance(lines, str) else list(lines)
        super().__init__("\n".join(self.lines))


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Return `"; did you mean 'x'?"` for the closest known word, or an empty string."""
    import difflib

    close = difflib.get_close_matches(str(word), [str(k) for k in known], n=1, cutoff=0.6)
    return f"; did you mean '{close[0]}'?" if close else ""
