"""Control: everything between advice and a proven change."""
