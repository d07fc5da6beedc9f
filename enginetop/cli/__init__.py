"""The command line: parsing, wiring, exit codes. The only room that may import every other one."""
