"""`python -m enginetop`."""

import sys

from enginetop.cli.main import main

sys.exit(main())
