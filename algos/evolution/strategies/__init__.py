"""Evolution strategies, one file each, behind one protocol."""
