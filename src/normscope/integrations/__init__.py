"""Training frameworks and loggers, each imported only when used."""
