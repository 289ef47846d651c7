"""The science of Paretune: jobs, layouts, search, frontier, recommendation, and the store that keeps trials."""
