"""The crash grid: every failpoint crossed with every fault, at the first, a middle and the last batch, alone or not.

A cell is data, and so is what must become of it: every row once, and a driver that stops only with an error which that
fault explains. Cells run on real processes: drivers without Spark, and Spark itself.
"""
