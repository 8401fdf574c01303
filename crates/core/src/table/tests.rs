//! Checks of the table, step by step.
