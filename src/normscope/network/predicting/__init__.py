"""What a network predicts when something in it is replaced.

One attention head (`ablation`), or the whole network by its saturated self (`task`). What is
predicted, and where, is found from the model and its batches (`predictions`).
"""
