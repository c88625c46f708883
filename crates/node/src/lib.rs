//! Nodes. Simulated ones behave towards the API like real ones, and run nothing.

pub mod simulated;
