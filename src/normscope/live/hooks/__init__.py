"""Where a monitor is called from: the end of backward, the steps of optimizers, never from compiled code."""
