"""Where targets come from besides the command line: files, names, folders, this machine, a Prometheus."""
