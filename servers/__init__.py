"""Real servers on loopback, for the proof and for the tests: started here, stopped by their own pid."""
