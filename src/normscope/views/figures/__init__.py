"""One module per subject: from results of `theory` and rows of a run file to figures and tables.

A module offers some of these two kinds of function and nothing else that draws:

    section(...) -> Section | None       its section of the report; None if there is nothing to show
    *figure(...) -> FigureSpec           a figure that the report and `ns.plot` share
"""
