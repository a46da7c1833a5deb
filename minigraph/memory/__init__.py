"""Memory: schedules, the persistent layout, offset packing, machine models and policies."""
