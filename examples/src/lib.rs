//! Controllers to learn from and to begin with, each with a test that breaks it on purpose and a program that runs it.
//!
//! - [`thermostat`]: the smallest one: a desired and an actual temperature.
//! - [`configmap`]: creates or patches a child, and leaves alone what isn't its own.
//! - [`mariadb`]: a database of several children, with phases, conditions and a finalizer.
//! - [`machine`]: machines of a cloud outside of the cluster, whose calls fail and take their time.
//!
//! [`program`] is what their `main`s have in common.

pub mod configmap;
pub mod machine;
pub mod mariadb;
pub mod program;
pub mod thermostat;
