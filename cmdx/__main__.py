"""``python -m cmdx``."""

import sys

from cmdx.cli.main import main

sys.exit(main())
