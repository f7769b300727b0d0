"""Verifying, timing and choosing: one problem's plans on one device."""
