"""Published tables of memory strategies beside what minigraph's policies of the same names come to."""
