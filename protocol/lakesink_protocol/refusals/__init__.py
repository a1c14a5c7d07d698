"""What a refused batch says, what it offers, and how an operator accepts it. Pure."""
