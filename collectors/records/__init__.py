"""Records of single requests, as engines, gateways and clients log them: their lines and their files."""
