"""Where alerts are delivered: what is to be told, kept until it is told, and by whom."""
