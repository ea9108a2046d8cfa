"""The side that has the environments: sessions of clients, each order done once."""
