"""Figures of a sweep: maps over learning rate × weight decay, and the curves of its cells."""
