"""The face of Paretune: the HTTP service, the command line and the page."""
