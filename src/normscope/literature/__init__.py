"""Papers: what one is about, what it cites, who cites it. No torch, SciPy, plotly or NumPy is loaded here.

`works` is what everything else makes: a work, its key terms, and a paper among its works. `terms` finds key
terms and a summary in text, `sources` asks arXiv, OpenAlex and Semantic Scholar, `libraries` reads and writes
BibTeX, RIS, CSL-JSON and CSV, `papers` puts them together.
"""
