"""What recorded spectra say over the steps and over the layers, ready to be drawn."""
