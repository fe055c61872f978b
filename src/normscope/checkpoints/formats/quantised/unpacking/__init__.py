"""How float32 values are computed from packed bytes: rows, blocks, words; whoever packed them."""
