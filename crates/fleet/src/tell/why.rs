//! Why a vehicle is where it is, in one sentence.

use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt;

use super::Fleet;
use crate::kinds::Rollout;
use crate::phase::Phase;
use crate::rollout::plan::Course;
use crate::rollout::tally::Standing;
use crate::view::VehicleView;

impl Fleet {
    /// Names the gate that holds a vehicle, or what it is doing; none if there is no such vehicle.
    #[must_use]
    pub fn why(&self, name: &str, now: Timestamp) -> Option<String> {
        let vehicle = self.vehicle(name)?;
        let why = self.gate(vehicle, name, now);
        Some(match papers(vehicle, name, now) {
            Some(papers) => format!("{why}; {papers}"),
            None => why,
        })
    }

    fn gate(&self, vehicle: &VehicleView, name: &str, now: Timestamp) -> String {
        let status = &vehicle.status;
        let wanted = vehicle.wanted().unwrap_or("what it has");
        let running = vehicle.running().unwrap_or("nothing that is known");
        if status.observed_generation != vehicle.metadata.generation && status.phase.is_some() {
            return format!("{name} runs {running}; that it should run {wanted} was asked for a moment ago");
        }
        let blocked = status.conditions.blocked.as_ref().filter(|said| said.holds);
        match (status.phase, blocked, status.retry.as_deref()) {
            (None, ..) => format!("{name} is new: no controller has looked at it yet"),
            (Some(Phase::UpToDate), ..) => match self.hold(vehicle, now) {
                Some(hold) => format!("{name} runs {running}; held (RolloutHold): {hold}"),
                None => format!("{name} runs {running}, as it should"),
            },
            (Some(Phase::Failed), _, retry) => {
                let retry =
                    retry.map(|retry| format!("{}: {}", retry.last_reason, retry.last_message)).unwrap_or_default();
                format!("{name} runs {running} and has given up on {wanted}: {retry}; only another spec helps")
            }
            (Some(Phase::RetryBackoff), _, Some(retry)) => {
                let next = retry.next_time.as_ref().map_or("later".to_owned(), |next| format!("at {}", next.0));
                let failures = retry.failures;
                format!(
                    "{name} runs {running}; {failures} attempts to install {wanted} failed, the last with {}: {}; the next is {next}",
                    retry.last_reason, retry.last_message
                )
            }
            (Some(_), Some(said), _) => {
                format!("{name} runs {running} and should run {wanted}; held ({}): {}", said.reason, said.message)
            }
            (Some(_), None, _) if !vehicle.is_connected() && vehicle.running().is_none() => {
                let wanted = vehicle.wanted().map(|wanted| format!(", and should run {wanted}")).unwrap_or_default();
                format!(
                    "{name} has never connected{wanted}: does its agent run, with what `setpoint fleet enrol {name}` wrote?"
                )
            }
            (Some(phase), None, _) if !vehicle.is_connected() => {
                let since = status.conditions.connected.map(|(_, since)| format!(" since {since}")).unwrap_or_default();
                format!("{name} is offline{since}; it goes from {running} to {wanted} ({phase}) when it is back")
            }
            (Some(phase), None, _) => match status.progress.as_deref().filter(|progress| progress.result.is_empty()) {
                Some(progress) => format!("{name} goes from {running} to {wanted}: {phase}, {} %", progress.percent),
                None => format!("{name} goes from {running} to {wanted}: {phase}"),
            },
        }
    }

    /// Which rollout means a vehicle and has not told it yet, and why.
    fn hold(&self, vehicle: &VehicleView, now: Timestamp) -> Option<String> {
        let is_over = |rollout: &&Rollout| {
            let phase = rollout.status.as_ref().and_then(|status| status.phase.as_deref());
            [Course::Completed, Course::RolledBack, Course::Superseded].iter().any(|over| phase == Some(over.word()))
        };
        self.rollouts.iter().filter(|rollout| !is_over(rollout)).find_map(|rollout| {
            let sight = self.sight(rollout).ok()?;
            let why = match sight.facts(now).standing(vehicle) {
                Standing::Candidate => "it has not come to it yet".to_owned(),
                Standing::Away(since) => format!("it is offline since {since}"),
                Standing::Blocked(why) => format!("it can't get it ({why})"),
                Standing::NotMeant
                | Standing::Superseded
                | Standing::Lost(_)
                | Standing::InProgress
                | Standing::Failing(_)
                | Standing::Failed
                | Standing::Confirmed => return None,
            };
            let status = rollout.status.clone().unwrap_or_default();
            let phase = status.phase.unwrap_or_else(|| "Pending".to_owned());
            let said = status.conditions.into_iter().find(|said| said.type_ == "Progressing");
            let said = said.map(|said| format!(": {}", said.message)).unwrap_or_default();
            let version = &sight.firmware.spec.version;
            Some(format!("rollout {} brings {version}, and {why} ({phase}{said})", rollout.name_any()))
        })
    }
}

/// What its certificate has to do with it that a vehicle is not connected.
fn papers(vehicle: &VehicleView, name: &str, now: Timestamp) -> Option<String> {
    if vehicle.is_connected() {
        return None;
    }
    if vehicle.spec.access.as_deref().is_some_and(|papers| papers.revoked) {
        return Some("its access is revoked".to_owned());
    }
    let (expired, until) = vehicle.expired(now)?;
    Some(if now < until {
        format!("its certificate has expired at {expired}; it comes back by itself until {until}")
    } else {
        format!("its certificate has expired at {expired}, and it needs a token: `setpoint fleet token {name}`")
    })
}
