"""The config file that `enginetop config init` writes, valid with and without its examples."""

from __future__ import annotations

STARTER = """\
# Config file of enginetop. Lines that begin with "#" and a word are examples: take the "#" away to use them.
# `enginetop config validate` says what is wrong in here, `enginetop config print` what it comes to.
# Secrets never stand in here: only the names of variables (..._env) and files (..._file) that hold them.

interval_seconds = 2.0                # between two scrapes
#timeout_seconds = 1.8                # of one scrape; default: 0.9 of the interval, at most 10
window_seconds = 60.0                 # of rates and percentiles

# Engines. None here: those that listen on this machine.
#[[targets]]
#url = "https://10.0.0.1:8000"        # or ssh://host/127.0.0.1:8000
#name = "a1"
#api_key_env = "VLLM_API_KEY"         # or api_key_file, or username with password_env or password_file
#ca_file = "/etc/ssl/engines.pem"

# Engines that come and go: kind is file_sd, dns, dynamo, local, prometheus or kubernetes.
#[[discovery]]
#kind = "dns"
#name = "vllm.service.consul:8000"

# The fleet read from there instead of from its engines.
#[prometheus]
#url = "http://prometheus:9090"

# GPUs of other machines: dcgm-exporter and the like. With [prometheus] they are not asked.
#[[gpu_exporters]]
#url = "http://10.0.0.1:9400"

# Logs of single requests.
#[[records]]
#path = "/var/log/litellm/requests.jsonl"

# Objectives: the first entry whose pattern matches a model counts.
#[[slo]]
#model = "*"
#ttft_seconds = 1.0                   # or "1000ms"
#tpot_seconds = 0.1
#target = 0.95

# Rules of your own; without `when` an entry sets the hold of a built-in rule.
#[[alerts]]
#rule = "MyKv"
#when = "kv_usage_ratio > 0.95 and preemptions_per_second > 0"
#for_seconds = 60
#severity = "warning"

# Alerts that are not told until a time.
#[[silences]]
#until = 2030-01-01T08:00:00Z
#target = "b*"
#reason = "being rebuilt"

# Where `enginetop watch` delivers alerts: kind is file, webhook, slack or alertmanager.
#[[sinks]]
#kind = "slack"
#url_env = "SLACK_WEBHOOK_URL"

# What `enginetop watch` serves: /metrics and /healthz.
#[watch]
#listen = "127.0.0.1:9190"

# What an hour of one GPU costs, for cost per million tokens.
#[cost]
#per_gpu_hour = 2.5
#currency = "EUR"

# The screen: a theme, columns in order, and keys by the word of an action.
#[screen]
#theme = "dark"
#ascii = false
#[keys]
#quit = ["q", "ctrl+q"]

# Without this table enginetop is read-only.
#[control]
#blocks = 30
#block_seconds = 60.0

# Commands of this machine that restart an engine or set a gateway's budget, by name.
#[hooks.budget]
#command = ["/usr/local/bin/set-thinking-budget"]

# Gateways in front of engines, whose default thinking budget a hook sets.
#[[gateways]]
#name = "edge"
#hook = "budget"
#targets = ["a*"]
"""
