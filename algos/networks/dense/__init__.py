"""Dense networks trained in C, without torch and bit-identically on every CPU."""
