"""Studies: arms and seeds, what is measured of each run, and what it says about the paper's claims."""
