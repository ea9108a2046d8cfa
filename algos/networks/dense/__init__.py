"""Dense networks that learn in C, without torch and with the same bits on every processor."""
