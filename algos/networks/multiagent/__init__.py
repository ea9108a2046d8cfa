"""Several policies in one world: whose rows each acts for, and all of them as one."""
