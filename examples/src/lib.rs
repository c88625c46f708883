//! Controllers to learn from and to begin with, each with a test that breaks it on purpose and a program that runs it.
//!
//! - [`thermostat`]: the smallest one: a desired and an actual temperature.

pub mod thermostat;
