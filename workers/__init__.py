"""Where trials run: gangs on Ray and the runners they carry."""
