"""Design studies: many runs from one file, their table and figures; search for the best layout; batch jobs."""
