"""Whatever is computed from parameters alone, from files (`scan`, `audit`) or while training (`monitor`)."""
