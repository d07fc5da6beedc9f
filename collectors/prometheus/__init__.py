"""A fleet read from a Prometheus (or Thanos, Mimir, VictoriaMetrics) instead of from its engines."""
