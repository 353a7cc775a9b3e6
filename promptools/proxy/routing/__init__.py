"""Which provider and base URL a request goes to: names of models, replicas and their health, failover."""
