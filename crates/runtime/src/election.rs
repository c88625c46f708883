//! One leader among many: the Lease algorithm of client-go, and a fence around the leader's writes.
//!
//! # What holds
//!
//! Let a leader send the renewal that last succeeded at moment *t* of its own timer. Nobody else takes the Lease before *t* +
//! `lease_duration`: others wait that long from when they **saw** the record, which is after it was written, which is after *t*.
//! Nobody's wall clock is trusted.
//!
//! - A [`Fence`] lets a write **begin** only before *t* + `renew_deadline`, and gives up waiting for one at *t* + `lease_duration`. So
//!   a write overlaps with another leader only if more than `lease_duration - renew_deadline` (5 s by default) pass
//!   between the check and the moment at which the API server takes the write, or if the two timers run at speeds that
//!   differ by more than that share (a third, by default).
//! - A leader that was paused, at any point, finds the fence closed when it wakes: the check is on the time, not on whether the
//!   renewal task had a chance to notice. A fence that has closed never opens again, so nothing that was read in one
//!   term is written in a later one.
//! - A lease is given back only when no fenced write is under way any more; otherwise it is left to run out.
//!
//! What a client alone can't exclude is a pause *between* the check and the socket, or a request that the network holds back for
//! longer than the margin. Against these every fenced write carries the header [`FENCE_HEADER`] with the term it was made in:
//! a server that knows it refuses the write in the same transaction if the Lease has changed hands. A server that
//! doesn't know it ignores it; there the writes' own preconditions (`resourceVersion` on updates, uid on deletes) remain, and level
//! based controllers repair the rest. Timers don't count while a machine is suspended (Linux's `CLOCK_MONOTONIC`): a suspended
//! machine is the second case, not the first. Deleting the Lease by hand ends all guarantees.

mod candidate;
mod config;
mod elector;
mod fence;
mod gate;
mod record;

pub use candidate::{Answer, Candidate, Next, Request};
pub use config::{ConfigError, ElectionConfig};
pub use elector::{Elector, Ended};
pub use fence::{FENCE_HEADER, Fence, Pass, Refused};
pub use record::Record;

#[cfg(test)]
mod interleavings;
#[cfg(test)]
mod tests;
