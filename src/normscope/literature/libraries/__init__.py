"""Libraries of works as files: BibTeX, RIS and CSL-JSON are read and written, CSV is written.

bibtexparser and pybtex were tried. Both would be an extra to install before a .bib file opens, and neither
yields works, only fields; the reading of fields is the smaller part.
"""
