//! The fleet in the test kit: what users do, with every fault at every point.

mod kinds;
