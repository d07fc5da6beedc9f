"""Writers for the control APIs that engines have by themselves, one module a path."""
