"""``python -m cmdx``."""

import sys

from cmdx.cli import main

sys.exit(main())
