"""The service's endpoints, one module a resource."""
