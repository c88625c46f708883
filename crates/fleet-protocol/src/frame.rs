//! The frames of the control channel. Firmware never travels on it.
//!
//! A frame is one protobuf message, one WebSocket message, or one body of a long poll: the same bytes everywhere. Fields may be added,
//! numbers are never used again, and a reader passes over what it doesn't know.

use std::fmt;

use prost::Message;

use crate::{Outcome, Stage};

/// The version of the protocol that both ends say first.
pub const PROTOCOL_VERSION: u32 = 1;

/// Largest frame. Metadata of a release takes most of it: a few signatures and one target.
pub const FRAME_BYTES_MAX: usize = 64 * 1024;

/// Longest name, version, digest, reason or address in a frame.
pub const TEXT_BYTES_MAX: usize = 1024;

/// Longest message for people: the end of a log of a failed start.
pub const MESSAGE_BYTES_MAX: usize = 4096;

/// Most health checks of one firmware.
const CHECKS_MAX: usize = 32;

/// What comes from a vehicle, directly or through a gateway.
#[derive(Clone, PartialEq, Message)]
pub struct FromVehicle {
    /// `namespace/name`; empty where the connection's certificate names the one vehicle.
    #[prost(string, tag = "1")]
    pub vehicle: String,
    /// What it says.
    #[prost(oneof = "Said", tags = "2, 3, 4, 5")]
    pub said: Option<Said>,
}

/// What a vehicle can say.
#[derive(Clone, PartialEq, prost::Oneof)]
pub enum Said {
    /// The first frame of a session.
    #[prost(message, tag = "2")]
    Hello(Hello),
    /// Where the vehicle is with its task.
    #[prost(message, tag = "3")]
    Report(Report),
    /// "I hear you": the number of the ping that is answered. Without it a cut in one direction would go unseen.
    #[prost(uint64, tag = "4")]
    Pong(u64),
    /// A gateway's vehicle went out of reach.
    #[prost(bool, tag = "5")]
    Left(bool),
}

/// The first frame of a session.
#[derive(Clone, PartialEq, Message)]
pub struct Hello {
    /// [`PROTOCOL_VERSION`].
    #[prost(uint32, tag = "1")]
    pub protocol: u32,
    /// The version of the agent.
    #[prost(string, tag = "2")]
    pub agent_version: String,
    /// Grows with each session of this vehicle, over restarts: of two connections the higher one counts.
    #[prost(uint64, tag = "3")]
    pub epoch: u64,
    /// Where it is now.
    #[prost(message, optional, tag = "4")]
    pub report: Option<Report>,
}

/// Where a vehicle is: always the whole, so that the latest one replaces all before.
#[derive(Clone, PartialEq, Message)]
pub struct Report {
    /// The firmware that runs and is confirmed.
    #[prost(string, tag = "1")]
    pub firmware_version: String,
    /// The slot that runs.
    #[prost(string, tag = "2")]
    pub active_slot: String,
    /// The digest of what the other slot holds, if it is whole.
    #[prost(string, tag = "3")]
    pub inactive_digest: String,
    /// The task that it works on, or worked on last; empty if there was none.
    #[prost(string, tag = "4")]
    pub task_id: String,
    /// The attempt at it.
    #[prost(uint32, tag = "5")]
    pub attempt: u32,
    /// The generation of the spec that it is for.
    #[prost(int64, tag = "6")]
    pub generation: i64,
    /// Grows with each report of a task.
    #[prost(uint64, tag = "7")]
    pub seq: u64,
    /// How far it is.
    #[prost(enumeration = "Stage", tag = "8")]
    pub stage: i32,
    /// How much of the artifact is there.
    #[prost(uint32, tag = "9")]
    pub percent: u32,
    /// How it ended.
    #[prost(enumeration = "Outcome", tag = "10")]
    pub outcome: i32,
    /// One of [`crate::reason`], if it failed.
    #[prost(string, tag = "11")]
    pub reason: String,
    /// The same for people.
    #[prost(string, tag = "12")]
    pub message: String,
    /// The gate that holds it, if one does.
    #[prost(string, tag = "13")]
    pub gate: String,
    /// Whether what runs is well.
    #[prost(bool, tag = "14")]
    pub healthy: bool,
    /// The identification of the software that runs, by UN R156; empty where the firmware has none.
    #[prost(string, tag = "15")]
    pub rxswin: String,
}

impl Report {
    /// Whether it says how a task ended: such a report is never held back.
    #[must_use]
    pub fn is_terminal(&self) -> bool {
        self.outcome() != Outcome::Open
    }
}

/// What goes to a vehicle.
#[derive(Clone, PartialEq, Message)]
pub struct ToVehicle {
    /// `namespace/name` on a gateway's connection; empty otherwise.
    #[prost(string, tag = "1")]
    pub vehicle: String,
    /// What it is told.
    #[prost(oneof = "Told", tags = "2, 3, 4, 5")]
    pub told: Option<Told>,
}

/// What a vehicle can be told.
#[derive(Clone, PartialEq, prost::Oneof)]
pub enum Told {
    /// The answer to its hello.
    #[prost(message, tag = "2")]
    Welcome(Welcome),
    /// What should be. Boxed: the other frames are small and many.
    #[prost(message, boxed, tag = "3")]
    Desired(Box<Desired>),
    /// "Do you hear me?", with a number to send back.
    #[prost(uint64, tag = "4")]
    Ping(u64),
    /// The hub ends the session.
    #[prost(message, tag = "5")]
    Goodbye(Goodbye),
}

/// The answer to a hello.
#[derive(Clone, PartialEq, Message)]
pub struct Welcome {
    /// [`PROTOCOL_VERSION`].
    #[prost(uint32, tag = "1")]
    pub protocol: u32,
    /// How often the hub pings, in seconds: a vehicle that hears none for three times as long connects anew.
    #[prost(uint32, tag = "2")]
    pub ping_seconds: u32,
    /// The hub's wall time in seconds since 1970: a vehicle without a clock of its own starts from it.
    #[prost(int64, tag = "3")]
    pub now: i64,
    /// From when the vehicle's certificate counts, in seconds since 1970; zero where there is none on the connection.
    #[prost(int64, tag = "4")]
    pub certificate_from: i64,
    /// Until when it counts. A vehicle asks for the next one at two thirds of this time.
    #[prost(int64, tag = "5")]
    pub certificate_until: i64,
}

/// The end of a session, and when to come back.
#[derive(Clone, PartialEq, Message)]
pub struct Goodbye {
    /// Why.
    #[prost(string, tag = "1")]
    pub reason: String,
    /// The vehicle comes back after a time of its own choice up to this, so that not all come at once.
    #[prost(uint32, tag = "2")]
    pub retry_within_ms: u32,
}

/// What should be on a vehicle. Without a task there is nothing to do.
#[derive(Clone, PartialEq, Message)]
pub struct Desired {
    /// The generation of the spec.
    #[prost(int64, tag = "1")]
    pub generation: i64,
    /// The task; empty if there is none.
    #[prost(string, tag = "2")]
    pub task_id: String,
    /// The attempt at it, from 1.
    #[prost(uint32, tag = "3")]
    pub attempt: u32,
    /// The firmware.
    #[prost(string, tag = "4")]
    pub version: String,
    /// The artifact's SHA-256 in hexadecimal.
    #[prost(string, tag = "5")]
    pub digest: String,
    /// The artifact's length.
    #[prost(uint64, tag = "6")]
    pub size: u64,
    /// Where the artifact is: a URL, or a path on the hub.
    #[prost(string, tag = "7")]
    pub url: String,
    /// The name of the artifact in the release team's metadata.
    #[prost(string, tag = "8")]
    pub target: String,
    /// The release team's signed metadata.
    #[prost(string, tag = "9")]
    pub released: String,
    /// The director's signed assignment.
    #[prost(string, tag = "10")]
    pub assigned: String,
    /// When a vehicle may do what.
    #[prost(message, optional, tag = "11")]
    pub policy: Option<Policy>,
    /// How the new firmware proves that it is well.
    #[prost(message, repeated, tag = "12")]
    pub health_checks: Vec<HealthCheck>,
    /// Whether nothing may begin now.
    #[prost(bool, tag = "13")]
    pub paused: bool,
    /// The firmware's release counter.
    #[prost(uint64, tag = "14")]
    pub release_counter: u64,
    /// The identity of the vehicle's object: generations of another one of the same name don't compare.
    #[prost(string, tag = "15")]
    pub vehicle_uid: String,
    /// The identification of the firmware by UN R156; empty where it has none.
    #[prost(string, tag = "16")]
    pub rxswin: String,
    /// What people are told before they agree.
    #[prost(message, optional, tag = "17")]
    pub notes: Option<Notes>,
}

/// What people are told before they agree.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct Notes {
    /// What the firmware is good for.
    #[prost(string, tag = "1")]
    pub purpose: String,
    /// How long the vehicle can't be used.
    #[prost(uint32, tag = "2")]
    pub minutes: u32,
    /// What it can't do any more.
    #[prost(string, tag = "3")]
    pub lost_functions: String,
}

/// When a vehicle may do what. Judged on the vehicle, connected or not.
#[derive(Clone, PartialEq, Message)]
pub struct Policy {
    /// When it may download.
    #[prost(string, tag = "1")]
    pub download_window: String,
    /// When it may install and restart.
    #[prost(string, tag = "2")]
    pub install_window: String,
    /// Whether somebody has to agree.
    #[prost(bool, tag = "3")]
    pub require_consent: bool,
    /// The least charge, in percent.
    #[prost(uint32, tag = "4")]
    pub min_battery: u32,
    /// Whether it has to stand.
    #[prost(bool, tag = "5")]
    pub require_parked: bool,
    /// Whether a connection that costs by the byte will do.
    #[prost(bool, tag = "6")]
    pub metered_ok: bool,
    /// A condition in CEL over what the vehicle knows of itself.
    #[prost(string, tag = "7")]
    pub gate: String,
}

/// One way in which firmware proves that it is well.
#[derive(Clone, PartialEq, Message)]
pub struct HealthCheck {
    /// `hub` for a connection to the hub; other names are commands that the agent's configuration knows.
    #[prost(string, tag = "1")]
    pub name: String,
    /// How long it may take until it is well, in seconds.
    #[prost(uint32, tag = "2")]
    pub timeout_seconds: u32,
    /// How long it has to stay well, in seconds.
    #[prost(uint32, tag = "3")]
    pub stable_seconds: u32,
}

/// Why bytes are no frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FrameError {
    /// More than [`FRAME_BYTES_MAX`].
    TooLarge(usize),
    /// No message of this protocol.
    Malformed(String),
    /// A field is longer than its bound.
    TooLong(&'static str),
    /// It says nothing, or nothing that this version knows.
    Empty,
}

impl fmt::Display for FrameError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FrameError::TooLarge(bytes) => write!(formatter, "a frame of {bytes} bytes is over {FRAME_BYTES_MAX}"),
            FrameError::Malformed(why) => write!(formatter, "no frame of this protocol: {why}"),
            FrameError::TooLong(field) => write!(formatter, "{field} is too long"),
            FrameError::Empty => formatter.write_str("the frame says nothing that is known"),
        }
    }
}

impl std::error::Error for FrameError {}

impl FromVehicle {
    /// A frame of the one vehicle of a connection.
    #[must_use]
    pub fn of(said: Said) -> FromVehicle {
        FromVehicle { vehicle: String::new(), said: Some(said) }
    }

    /// Reads a frame; what is over a bound is refused.
    pub fn read(bytes: &[u8]) -> Result<FromVehicle, FrameError> {
        let frame: FromVehicle = decode(bytes)?;
        text("vehicle", &frame.vehicle)?;
        match &frame.said {
            None => return Err(FrameError::Empty),
            Some(Said::Hello(hello)) => {
                text("agent_version", &hello.agent_version)?;
                hello.report.as_ref().map_or(Ok(()), check_report)?;
            }
            Some(Said::Report(report)) => check_report(report)?,
            Some(Said::Pong(_) | Said::Left(_)) => {}
        }
        Ok(frame)
    }

    /// The frame's bytes.
    #[must_use]
    pub fn bytes(&self) -> Vec<u8> {
        self.encode_to_vec()
    }
}

impl ToVehicle {
    /// A frame for the one vehicle of a connection.
    #[must_use]
    pub fn of(told: Told) -> ToVehicle {
        ToVehicle { vehicle: String::new(), told: Some(told) }
    }

    /// Reads a frame; what is over a bound is refused.
    pub fn read(bytes: &[u8]) -> Result<ToVehicle, FrameError> {
        let frame: ToVehicle = decode(bytes)?;
        text("vehicle", &frame.vehicle)?;
        match &frame.told {
            None => return Err(FrameError::Empty),
            Some(Told::Desired(desired)) => check_desired(desired)?,
            Some(Told::Goodbye(goodbye)) => text("reason", &goodbye.reason)?,
            Some(Told::Welcome(_) | Told::Ping(_)) => {}
        }
        Ok(frame)
    }

    /// The frame's bytes.
    #[must_use]
    pub fn bytes(&self) -> Vec<u8> {
        self.encode_to_vec()
    }
}

fn decode<M: Message + Default>(bytes: &[u8]) -> Result<M, FrameError> {
    if bytes.len() > FRAME_BYTES_MAX {
        return Err(FrameError::TooLarge(bytes.len()));
    }
    M::decode(bytes).map_err(|error| FrameError::Malformed(error.to_string()))
}

fn check_report(report: &Report) -> Result<(), FrameError> {
    text("firmware_version", &report.firmware_version)?;
    text("active_slot", &report.active_slot)?;
    text("inactive_digest", &report.inactive_digest)?;
    text("task_id", &report.task_id)?;
    text("reason", &report.reason)?;
    text("gate", &report.gate)?;
    text("rxswin", &report.rxswin)?;
    within("message", &report.message, MESSAGE_BYTES_MAX)
}

fn check_desired(desired: &Desired) -> Result<(), FrameError> {
    text("vehicle_uid", &desired.vehicle_uid)?;
    text("task_id", &desired.task_id)?;
    text("version", &desired.version)?;
    text("digest", &desired.digest)?;
    text("url", &desired.url)?;
    text("target", &desired.target)?;
    text("rxswin", &desired.rxswin)?;
    if let Some(notes) = &desired.notes {
        within("purpose", &notes.purpose, MESSAGE_BYTES_MAX)?;
        within("lost_functions", &notes.lost_functions, MESSAGE_BYTES_MAX)?;
    }
    if let Some(policy) = &desired.policy {
        text("download_window", &policy.download_window)?;
        text("install_window", &policy.install_window)?;
        within("gate", &policy.gate, MESSAGE_BYTES_MAX)?;
    }
    if desired.health_checks.len() > CHECKS_MAX {
        return Err(FrameError::TooLong("health_checks"));
    }
    desired.health_checks.iter().try_for_each(|check| text("health_checks", &check.name))
}

fn text(field: &'static str, value: &str) -> Result<(), FrameError> {
    within(field, value, TEXT_BYTES_MAX)
}

fn within(field: &'static str, value: &str, most: usize) -> Result<(), FrameError> {
    if value.len() > most { Err(FrameError::TooLong(field)) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn any_bytes_are_read_or_refused_without_a_panic(bytes in prop::collection::vec(any::<u8>(), 0..512)) {
            let _ = FromVehicle::read(&bytes);
            let _ = ToVehicle::read(&bytes);
        }

        #[test]
        fn a_report_comes_back_as_it_was(
            version in "[a-z0-9.]{0,20}", task in "[a-z2-7]{0,16}", attempt: u32, generation: i64, seq: u64,
            stage in 0..8i32, percent in 0..=100u32, outcome in 0..4i32, message in ".{0,100}",
        ) {
            let report = Report {
                firmware_version: version, task_id: task, attempt, generation, seq, stage, percent, outcome, message,
                ..Report::default()
            };
            let frame = FromVehicle::of(Said::Report(report));
            prop_assert_eq!(FromVehicle::read(&frame.bytes()).unwrap(), frame);
        }

        #[test]
        fn a_frame_cut_anywhere_is_never_taken_for_more_than_was_sent(cut in 0usize..60) {
            let desired = Desired { generation: 7, task_id: "abcdefgh".into(), version: "2.0".into(), ..Desired::default() };
            let bytes = ToVehicle::of(Told::Desired(Box::new(desired))).bytes();
            prop_assume!(cut < bytes.len());
            prop_assert!(ToVehicle::read(&bytes[..cut]).is_err());
        }
    }

    #[test]
    fn what_is_over_a_bound_is_refused_by_name() {
        let report = |report| FromVehicle::read(&FromVehicle::of(Said::Report(report)).bytes());
        let long = "x".repeat(TEXT_BYTES_MAX + 1);
        let refused = report(Report { task_id: long.clone(), ..Report::default() });
        assert_eq!(refused, Err(FrameError::TooLong("task_id")));
        let refused = report(Report { message: "x".repeat(MESSAGE_BYTES_MAX + 1), ..Report::default() });
        assert_eq!(refused, Err(FrameError::TooLong("message")));
        assert_eq!(FromVehicle::read(&vec![0; FRAME_BYTES_MAX + 1]), Err(FrameError::TooLarge(FRAME_BYTES_MAX + 1)));
        assert_eq!(FromVehicle::read(&[]), Err(FrameError::Empty));
        let notes = Notes { purpose: "x".repeat(MESSAGE_BYTES_MAX + 1), ..Notes::default() };
        let long = Desired { notes: Some(notes), ..Desired::default() };
        let refused = ToVehicle::read(&ToVehicle::of(Told::Desired(Box::new(long))).bytes());
        assert_eq!(refused, Err(FrameError::TooLong("purpose")));
        let many = Desired { health_checks: vec![HealthCheck::default(); CHECKS_MAX + 1], ..Desired::default() };
        let refused = ToVehicle::read(&ToVehicle::of(Told::Desired(Box::new(many))).bytes());
        assert_eq!(refused, Err(FrameError::TooLong("health_checks")));
    }

    #[test]
    fn fields_of_a_later_version_are_passed_over() {
        let mut bytes = FromVehicle::of(Said::Pong(3)).bytes();
        // Field 60, a varint.
        bytes.extend([0xe0, 0x03, 0x01]);
        assert_eq!(FromVehicle::read(&bytes).unwrap().said, Some(Said::Pong(3)));
    }
}
