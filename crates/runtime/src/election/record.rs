//! What a Lease says about the election.

use std::time::Duration;

use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use k8s_openapi::jiff::Timestamp;

/// The part of a Lease that elections read and write. Times are the writer's and are only ever compared for equality.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Default)]
pub struct Record {
    /// Who holds it; empty if nobody does.
    pub holder: String,
    /// How long others wait from when they saw this record.
    pub duration_seconds: i32,
    /// When the holder took it.
    pub acquired: Option<Timestamp>,
    /// When the holder last said that it is there.
    pub renewed: Option<Timestamp>,
    /// How often it changed hands.
    pub transitions: i32,
}

impl Record {
    /// Reads a Lease. What is missing is zero, as in the API.
    pub fn of(lease: &Lease) -> Record {
        let spec = lease.spec.clone().unwrap_or_default();
        Record {
            holder: spec.holder_identity.unwrap_or_default(),
            duration_seconds: spec.lease_duration_seconds.unwrap_or_default(),
            acquired: spec.acquire_time.map(|time| time.0),
            renewed: spec.renew_time.map(|time| time.0),
            transitions: spec.lease_transitions.unwrap_or_default(),
        }
    }

    /// Writes it into a Lease. What elections don't use stays as it was.
    pub fn write_to(&self, lease: &mut Lease) {
        let spec = lease.spec.get_or_insert_with(LeaseSpec::default);
        spec.holder_identity = Some(self.holder.clone());
        spec.lease_duration_seconds = Some(self.duration_seconds);
        spec.acquire_time = self.acquired.map(MicroTime);
        spec.renew_time = self.renewed.map(MicroTime);
        spec.lease_transitions = Some(self.transitions);
    }

    /// How long others wait from when they saw this record.
    pub fn duration(&self) -> Duration {
        Duration::from_secs(u64::try_from(self.duration_seconds).unwrap_or_default())
    }
}
