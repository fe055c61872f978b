"""What growth does to the network: attention, saturation and activations over the steps, beside the norm."""
