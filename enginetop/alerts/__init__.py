"""Alert rules and their states. Pure, time injected; knows only `enginetop.fleet`."""
