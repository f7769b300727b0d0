"""`python -m tunefarm`."""

import sys

from tunefarm.cli import main

sys.exit(main())
