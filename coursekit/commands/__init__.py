"""What the command ``coursekit`` does, and its commands."""
