"""Vector environments of others behind our contract."""
