"""What a release promises: wheels, metadata, pins, workflows and the documentation site."""
