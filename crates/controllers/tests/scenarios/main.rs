//! The controllers in the test kit: what users do, with every fault at every point.

mod process;
mod service_account;
