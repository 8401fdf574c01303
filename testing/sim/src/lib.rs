//! Seeded, deterministic simulation of core: virtual time, a lossy network, processes that pause and die.
