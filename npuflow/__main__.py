"""`python -m npuflow` is the command line."""

import sys

from npuflow.cli import main

sys.exit(main())
