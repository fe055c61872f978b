"""Tables, figures and the report; they compute nothing."""
