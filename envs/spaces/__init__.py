"""Elements of structured spaces as rows of bytes."""
