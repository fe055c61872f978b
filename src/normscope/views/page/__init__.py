"""One HTML page and what it is made of: figures and tables as values, colours, number formats, the template.

Figures, reports and `ns.plot` use this folder; nothing here imports them.
"""
