"""What is computed from parameters alone: from files (`scan`, `audit`) or during training (`monitor`)."""
