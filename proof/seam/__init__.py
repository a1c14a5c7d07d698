"""The coordinator with several targets that lose and gain rows, and drivers that die or have rivals at any call."""
