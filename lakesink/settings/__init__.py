"""Options and table properties as frozen settings."""
