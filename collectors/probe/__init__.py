"""A probe: a few chat requests of our own, to see how much a model thinks and what that takes."""
