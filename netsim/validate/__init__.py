"""The simulator against published measurements: rows of a table become runs, runs become errors, errors become a page."""
