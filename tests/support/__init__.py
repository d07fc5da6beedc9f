"""Helpers that several suites share: fakes and servers, no tests."""
