"""Studies, trials, attempts, measurements and events in SQLite or PostgreSQL; rows never leave this package."""
