//! What a vehicle is told: made from what is stored, at the moment that it is sent.

use std::time::Duration;

use k8s_openapi::jiff::{SignedDuration, Timestamp};
use setpoint_fleet_protocol::metadata::{Assignment, METADATA_BYTES_MAX, SigningKey, sign};
use setpoint_fleet_protocol::{Desired, HealthCheck, Notes, Policy, Welcome};
use setpoint_fleet_protocol::{PROTOCOL_VERSION, ToVehicle, Told};

use super::Credential;
use super::view::{FirmwareView, VehicleView};
use crate::kinds::{Task, UpdatePolicy};

/// How long an assignment counts: a vehicle that was away longer is told again.
const ASSIGNED_FOR: SignedDuration = SignedDuration::from_hours(30 * 24);

/// What a vehicle should be; none while nothing about it can be said.
pub fn desired(
    vehicle: &VehicleView,
    firmware: Option<&FirmwareView>,
    director: Option<&SigningKey>,
    now: Timestamp,
) -> Option<Desired> {
    let nothing = Desired {
        vehicle_uid: vehicle.metadata.uid.to_string(),
        generation: vehicle.metadata.generation,
        paused: vehicle.spec.paused,
        ..Desired::default()
    };
    let Some(task) = vehicle.status.task.as_deref() else { return Some(nothing) };
    let firmware = &firmware?.spec;
    let artifact = firmware.image()?;
    if artifact.sha256 != task.digest {
        // Another firmware of the same name: the controller will say what it means.
        return None;
    }
    let target = firmware.target_name.clone().unwrap_or_else(|| firmware.version.clone());
    let size = u64::try_from(artifact.size).unwrap_or_default();
    let release_counter = u64::try_from(firmware.release_counter).unwrap_or_default();
    let assignment = || Assignment {
        kind: "director".into(),
        version: u64::try_from(task.issued_at.0.as_second()).unwrap_or_default(),
        expires: now.saturating_add(ASSIGNED_FOR).unwrap_or(Timestamp::MAX).to_string(),
        vehicle: vehicle.metadata.key.to_string(),
        hardware_id: vehicle.spec.hardware_id.to_string(),
        target: target.clone(),
        sha256: artifact.sha256.clone(),
        length: size,
        release_counter,
    };
    let assigned = director.and_then(|key| sign(&assignment(), &[key])).unwrap_or_default();
    Some(Desired {
        generation: task.generation,
        task_id: task.id.clone(),
        attempt: attempt(task),
        version: task.firmware_version.clone(),
        digest: task.digest.clone(),
        size,
        url: artifact.url.clone(),
        released: firmware.signed.clone().filter(|text| text.len() <= METADATA_BYTES_MAX).unwrap_or_default(),
        assigned,
        target,
        policy: Some(policy(&vehicle.spec.update_policy)),
        health_checks: firmware.health_checks.iter().map(check).collect(),
        release_counter,
        rxswin: firmware.rxswin.clone().unwrap_or_default(),
        notes: firmware.notes.as_ref().map(notes),
        ..nothing
    })
}

/// The answer to a hello.
pub fn welcome(credential: Option<&Credential>, ping: Duration, now: Timestamp) -> ToVehicle {
    ToVehicle::of(Told::Welcome(Welcome {
        protocol: PROTOCOL_VERSION,
        ping_seconds: u32::try_from(ping.as_secs()).unwrap_or(u32::MAX),
        now: now.as_second(),
        certificate_from: credential.map_or(0, |credential| credential.from),
        certificate_until: credential.map_or(0, |credential| credential.until),
    }))
}

/// The attempt in the form of frames.
pub fn attempt(task: &Task) -> u32 {
    u32::try_from(task.attempt).unwrap_or(u32::MAX)
}

fn policy(policy: &UpdatePolicy) -> Policy {
    Policy {
        download_window: policy.download_window.clone().unwrap_or_default(),
        install_window: policy.install_window.clone().unwrap_or_default(),
        require_consent: policy.require_consent,
        min_battery: policy.min_battery.and_then(|charge| u32::try_from(charge).ok()).unwrap_or_default(),
        require_parked: policy.require_parked,
        metered_ok: policy.metered_ok,
        gate: policy.gate.clone().unwrap_or_default(),
    }
}

fn notes(notes: &crate::kinds::Notes) -> Notes {
    Notes {
        purpose: notes.purpose.clone().unwrap_or_default(),
        minutes: notes.minutes.and_then(|minutes| u32::try_from(minutes).ok()).unwrap_or_default(),
        lost_functions: notes.lost_functions.clone().unwrap_or_default(),
    }
}

fn check(check: &crate::kinds::HealthCheck) -> HealthCheck {
    HealthCheck {
        name: check.name.clone(),
        timeout_seconds: seconds(&check.timeout),
        stable_seconds: seconds(&check.stable_for),
    }
}

/// A span such as `1h30m` in whole seconds, rounded up; what can't be read is none.
fn seconds(text: &str) -> u32 {
    let mut total = 0.0;
    let mut rest = text;
    while !rest.is_empty() {
        let digits = rest.find(|letter: char| !letter.is_ascii_digit() && letter != '.').unwrap_or(rest.len());
        let (number, tail) = rest.split_at(digits);
        let (unit, tail) = tail.split_at(tail.find(|letter: char| letter.is_ascii_digit()).unwrap_or(tail.len()));
        let factor = match unit {
            "ms" => 0.001,
            "s" => 1.0,
            "m" => 60.0,
            "h" => 3600.0,
            _ => return 0,
        };
        total += number.parse::<f64>().unwrap_or_default() * factor;
        rest = tail;
    }
    // From 0 to what a span of 32 letters can say: the conversion saturates.
    total.ceil() as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_are_read_as_whole_seconds() {
        for (text, expected) in
            [("90s", 90), ("10m", 600), ("1h30m", 5400), ("1.5s", 2), ("200ms", 1), ("0s", 0), ("x", 0)]
        {
            assert_eq!(seconds(text), expected, "{text}");
        }
    }
}
