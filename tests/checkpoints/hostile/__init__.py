"""Crafted inputs, one small module per format: each case writes its files and says what must happen.

`case` has the list of cases, `runner` scans one in a child process and measures it.
"""
