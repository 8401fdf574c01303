//! Checks of the reference store.
