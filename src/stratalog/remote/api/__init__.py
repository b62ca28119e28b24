"""Interfaces of the tier, its values and states, and the loading of plug-ins."""
