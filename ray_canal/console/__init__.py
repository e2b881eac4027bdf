"""The console: pages, REST API and metrics of a deployment, over the public client API."""
