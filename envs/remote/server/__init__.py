"""Environment server: sessions of clients, whose orders are each executed once."""
