"""The side that asks: connections, what is kept against their loss, and the face of a vector environment."""

from paddock.envs.remote.polling import poll_where_one_waits

poll_where_one_waits()
