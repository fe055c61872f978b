"""Run files that may come from anybody: how they are opened, and what is checked before they are believed."""
