"""Fakes that ship with the product, for its tests and for its users' tests."""
