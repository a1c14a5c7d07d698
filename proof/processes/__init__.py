"""Real driver processes without Spark: started, killed, stopped, started again, and judged by what they leave."""
