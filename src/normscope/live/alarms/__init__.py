"""Early warnings from a live run: one module per family of rules, what they read, which alarms are active."""
