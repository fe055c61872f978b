"""The HTML page: its parts, its text, its template, and the reports of a run and of a sweep."""
