"""The side that asks: connections, what is kept against their loss, and the face of a vector environment."""
