"""Dialects for small pretrained bases, which go on with what they see: tests, and sessions of Python."""
