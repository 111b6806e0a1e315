"""bincount and histogram."""
