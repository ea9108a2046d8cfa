"""Entry point: `python -m platform` in the repository; elsewhere `python -m paddock`."""

import sys

if __name__ == "__main__":
    from paddock.launch import main

    sys.exit(main())
