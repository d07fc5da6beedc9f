"""Everything that reads the outside: HTTP, pages, GPU libraries, recordings. Knows only `enginetop.fleet`."""
