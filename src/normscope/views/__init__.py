"""Tables, figures and reports; they compute nothing.

page/       one HTML page, and what figures and pages are made of
figures/    one module per figure or section
reports/    `ns.report`: the HTML report of a run or of a sweep
plotting/   `ns.plot`: any result as a figure of its own
"""
