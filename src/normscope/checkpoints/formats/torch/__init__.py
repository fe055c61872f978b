"""What PyTorch writes: zip archives and legacy pickles, read as data; nothing in them is ever run.

From outside, use `pickles` to open a file. Other formats that contain pickles also use
`pickle_machine`, `pickle_values` and `state_dicts`.
"""
