"""`ns.plot`: any result as a plotly figure of its own, and as a file.

The figures are those of `figures`; this folder gives them the light theme, a title block and axes.
Outside this folder only `plot.plot` is used.
"""
