//! How a fleet fares.

use std::collections::BTreeMap;

use kube::ResourceExt;
use serde_json::{Value, json};

use super::Fleet;
use super::table::table;
use crate::phase::Phase;
use crate::version;

/// What vehicles are counted by: for people, and for programs.
const COUNTS: [(&str, &str); 7] = [
    ("VEHICLES", "all"),
    ("CONNECTED", "connected"),
    ("UP TO DATE", "upToDate"),
    ("UPDATING", "updating"),
    ("WAITING", "waiting"),
    ("RETRYING", "retrying"),
    ("FAILED", "failed"),
];

impl Fleet {
    /// How many vehicles are where, which versions they run, and how far rollouts are.
    #[must_use]
    pub fn overview(&self) -> String {
        let row = self.counts().map(|count| count.to_string()).to_vec();
        let parts = [table(&COUNTS.map(|(head, _)| head), &[row]), self.versions(), self.rollouts()];
        parts.into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join("\n")
    }

    /// The same for programs.
    #[must_use]
    pub fn figures(&self) -> Value {
        let counts = COUNTS.iter().zip(self.counts()).map(|((_, name), count)| ((*name).to_owned(), count.into()));
        let version =
            |(version, [run, wanted]): (&str, [usize; 2])| json!({"version": version, "run": run, "wanted": wanted});
        let rollout = |rollout: &crate::kinds::Rollout| {
            let status = rollout.status.clone().unwrap_or_default();
            json!({
                "name": rollout.name_any(), "firmware": rollout.spec.firmware_ref.name,
                "phase": status.phase.unwrap_or_else(|| "Pending".to_owned()), "step": status.step_text,
                "updated": status.counts.succeeded, "eligible": status.counts.eligible,
            })
        };
        json!({
            "vehicles": counts.collect::<serde_json::Map<_, _>>(),
            "versions": self.by_version().into_iter().map(version).collect::<Vec<_>>(),
            "rollouts": self.rollouts.iter().map(rollout).collect::<Vec<_>>(),
        })
    }

    fn counts(&self) -> [usize; 7] {
        let count = |is: &dyn Fn(Option<Phase>) -> bool| {
            self.vehicles.iter().filter(|vehicle| is(vehicle.status.phase)).count()
        };
        let is_updating = |phase: Option<Phase>| {
            phase.is_some_and(|phase| (Phase::Downloading..=Phase::RollingBack).contains(&phase))
        };
        [
            self.vehicles.len(),
            self.vehicles.iter().filter(|vehicle| vehicle.is_connected()).count(),
            count(&|phase| phase == Some(Phase::UpToDate)),
            count(&is_updating),
            count(&|phase| matches!(phase, None | Some(Phase::Pending | Phase::Waiting))),
            count(&|phase| phase == Some(Phase::RetryBackoff)),
            count(&|phase| phase == Some(Phase::Failed)),
        ]
    }

    /// How many run each version, and how many should.
    fn by_version(&self) -> Vec<(&str, [usize; 2])> {
        let mut versions: BTreeMap<&str, [usize; 2]> = BTreeMap::new();
        for vehicle in &self.vehicles {
            if let Some(running) = vehicle.running() {
                versions.entry(running).or_default()[0] += 1;
            }
            if let Some(wanted) = vehicle.wanted() {
                versions.entry(wanted).or_default()[1] += 1;
            }
        }
        let mut all: Vec<_> = versions.into_iter().collect();
        all.sort_by(|(one, _), (other, _)| version::compare(one, other));
        all
    }

    fn versions(&self) -> String {
        let all = self.by_version();
        if all.is_empty() {
            return String::new();
        }
        let row = |(version, [run, wanted]): (&str, [usize; 2])| {
            vec![version.to_owned(), run.to_string(), wanted.to_string()]
        };
        table(&["VERSION", "RUN", "WANTED"], &all.into_iter().map(row).collect::<Vec<_>>())
    }

    fn rollouts(&self) -> String {
        if self.rollouts.is_empty() {
            return String::new();
        }
        let row = |rollout: &crate::kinds::Rollout| {
            let status = rollout.status.clone().unwrap_or_default();
            let said = status.conditions.iter().find(|said| said.type_ == "Progressing");
            vec![
                rollout.name_any(),
                rollout.spec.firmware_ref.name.clone(),
                status.phase.unwrap_or_else(|| "Pending".to_owned()),
                status.step_text,
                format!("{}/{}", status.counts.succeeded, status.counts.eligible),
                said.map(|said| said.message.clone()).unwrap_or_default(),
            ]
        };
        let rows: Vec<_> = self.rollouts.iter().map(row).collect();
        table(&["ROLLOUT", "FIRMWARE", "PHASE", "STEP", "UPDATED", "MESSAGE"], &rows)
    }
}
