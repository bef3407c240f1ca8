"""`python -m matchlight` is `matchlight`, where the command is not on the path."""

import sys

from matchlight.cli import main

sys.exit(main())
