"""Trainings that raise no alarm and trainings with a fault: how many alarms, how soon."""
