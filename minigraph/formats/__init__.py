"""File formats that minigraph reads and writes, each in a file of its own."""
