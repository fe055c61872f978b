"""A paper's page: the network of works laid out, the HTML file, its script. A usual paper needs no numpy.

`paper_page` writes the file; `network_layout` places the works in the plane. Nothing here computes what
`literature` knows: terms, summaries, roles and merged works arrive as values.
"""
