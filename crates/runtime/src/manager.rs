//! Runs controllers and what they need: starts them in order, tells how they are, and stops them in order.

mod runnable;

pub use runnable::{Lifecycle, RunError, Runnable};
