"""`python -m recalld_client.cli` is `recallctl`."""

import sys

from recalld_client.cli import main

sys.exit(main())
