"""From a record to the run file: a queue, a thread that writes, and what resuming deletes."""
